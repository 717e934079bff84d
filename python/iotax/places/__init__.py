"""Where a lab's commands run: this machine (`here`), a guest of the vm lab (`guest`), a host (`host`) behind
SSH (`ssh`) or a Dask scheduler (`workers`, with `agent` there).

What a place must do stands in `base`: install the engine, start a task with its document, hand on its events one by
one, take lines for it, end it, and run a short command. Everything is asynchronous, so that one thread waits for
hundreds of hosts; `waiting` serves callers that do one thing at a time.

A new place is a module here that

- gives its commands to a POSIX shell there, and gives back what they write;
- starts tasks as `Task` wants them: from `piped`, where it has their pipes at hand;
- raises EngineError and nothing else: HostFault where there are several places, and the message must say which;
- takes `send` without waiting, and tells of a place that is gone by the next `event`;
- never leaves a task behind: `end` may be called at any time, and twice, and what cannot be reached any more ends by
  its lease (`lease_ns` in the document, renewed by the place);
- retries nothing: whether a trial is tried again is the runner's to say.
"""

from iotax.places.base import LEASE_NS, Binary, Event, HostFault, Place, Task

__all__ = ["LEASE_NS", "Binary", "Event", "HostFault", "Place", "Task"]
