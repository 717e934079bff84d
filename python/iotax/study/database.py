"""Sizes of the database that pgbench fills, and of its memory."""

from __future__ import annotations

from iotax.study.model import Load, Oltp, Volume
from iotax.units import format_size

SCALE_BYTES = 16 << 20
"""Bytes of tables and indexes for each unit of pgbench's scale: 100,000 accounts."""
MEMORY_SHARE = 2
"""The database is this many times as large as the memory that it and its cached pages may use."""
DATABASE_PAGES = (512, 1 << 24)
"""Minimum and maximum pages of iotax's own database with its log, as the engine allows."""
BUFFERS_MIN = 64
"""Minimum pages of its memory."""
LOG_IO_BYTES = 128 << 10
"""Maximum size of one write to its log; each write has at least a page."""
_ROOM_BYTES = 80 << 20
"""Space besides the tables: three empty databases of PostgreSQL, the write-ahead log, the file system's journal."""
_MEMORY_BYTES_MIN = 32 << 20
"""With less, PostgreSQL's own processes do not run."""
_CLIENT_BYTES = 4 << 20
"""PostgreSQL's memory for each client's process: measured at 3.1 to 3.3 MiB, plus its share of the page tables."""
_OTHERS_BYTES = 16 << 20
"""PostgreSQL's memory for everything else: buffers, processes without a client, dirty pages."""
_WAL_SHARE = 3
_WAL_BYTES_MIN = 16 << 20


def scale(load: Load, volume: Volume) -> int:
    """pgbench's scale factor."""
    return (load.working_set or volume.size // 2) // SCALE_BYTES


def size_bytes(load: Load, volume: Volume) -> int:
    """Bytes of tables and indexes."""
    return scale(load, volume) * SCALE_BYTES


def memory_bytes(load: Load, volume: Volume) -> int:
    """Memory of PostgreSQL's processes, its buffers, and the cached pages of its files."""
    return size_bytes(load, volume) // MEMORY_SHARE


def buffers_bytes(oltp: Oltp, working_set_bytes: int) -> int:
    """Memory of iotax's own database, in bytes."""
    return oltp.memory or working_set_bytes // MEMORY_SHARE


def wal_bytes(load: Load, volume: Volume) -> int:
    """Bytes of the write-ahead log; at this size a checkpoint starts by itself."""
    return max(_WAL_BYTES_MIN, (volume.size - size_bytes(load, volume)) // _WAL_SHARE)


def database_fault(load: Load, volume: Volume, clients: int) -> str | None:
    """Why a database cannot have this size with this maximum number of clients; None if it can."""
    size = size_bytes(load, volume)
    if size < MEMORY_SHARE * _MEMORY_BYTES_MIN:
        least = format_size(MEMORY_SHARE * _MEMORY_BYTES_MIN)
        return f"a database is {least} at least, for it is to exceed its memory {MEMORY_SHARE} times"
    if memory_bytes(load, volume) < (memory := _OTHERS_BYTES + clients * _CLIENT_BYTES):
        needed = format_size(MEMORY_SHARE * memory)
        return f"{clients} clients take {format_size(memory)} of memory, so a database of {needed}; say `working_set:`"
    if volume.size < size + _ROOM_BYTES:
        needed = format_size(size + _ROOM_BYTES)
        return f"a database of {format_size(size)} needs a volume of {needed}: its log and journal stand beside it"
    return None
