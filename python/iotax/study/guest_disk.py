"""A guest's virtual disk by the serial number that its hypervisor gives it: `guest-disk://SERIAL`.

The guest's name of the disk (/dev/vdb, /dev/sdc, /dev/nvme1n1) may change with each boot, the serial number stays.
"""

from __future__ import annotations

import re

SCHEME = "guest-disk://"
FORM = f"{SCHEME}SERIAL"
_SERIAL_MAX = 64
_SERIAL = re.compile(r"[A-Za-z0-9_.+-]+(?: +[A-Za-z0-9_.+-]+)*")


def serial_of(uri: str) -> str:
    """The serial number of a checked endpoint."""
    return uri.removeprefix(SCHEME)


def wrong_serial(serial: str) -> str:
    """The error in a serial number; empty if there is none."""
    if not serial:
        return "the serial number is missing"
    if len(serial) > _SERIAL_MAX:
        return f"the serial number has {len(serial)} characters; at most {_SERIAL_MAX} are possible"
    if not _SERIAL.fullmatch(serial):
        return "a serial number consists of letters, digits, the characters _ . + - and spaces between them"
    return ""
