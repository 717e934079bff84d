"""The live view of a run: one page, its contents as events, and the same as metrics (docs/guide/live.md). `Board` holds
the state; `LiveListener` updates it from a run of this process, `Follower` from the notebook of another process's run;
`LiveServer` serves it."""

from iotax.live.board import Board
from iotax.live.follow import Follower, LiveListener
from iotax.live.server import LOOPBACK, LiveServer

__all__ = ["LOOPBACK", "Board", "Follower", "LiveListener", "LiveServer"]
