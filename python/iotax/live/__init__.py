"""The live view of a run: one page, what it shows as events, and the same as metrics (docs/guide/live.md).

`Board` holds what is known; `LiveListener` writes a run of this process on it, `Follower` one that another process
writes to its notebook; `LiveServer` shows it.
"""

from iotax.live.board import Board
from iotax.live.follow import Follower
from iotax.live.listener import LiveListener
from iotax.live.server import LOOPBACK, LiveServer

__all__ = ["LOOPBACK", "Board", "Follower", "LiveListener", "LiveServer"]
