"""The studies that come with iotax, one YAML file each."""
