"""The lab of virtual machines: real kernel initiators and targets in QEMU, no root, nothing left behind."""
