"""iotax measures what each I/O costs over NFS, iSCSI, NVMe/TCP or Fibre Channel."""

__version__ = "0.1.0"
