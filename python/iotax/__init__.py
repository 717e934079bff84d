"""iotax measures what a storage protocol charges for an I/O."""

__version__ = "0.1.0"
