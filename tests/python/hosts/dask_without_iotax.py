"""Runs Dask's scheduler or worker with iotax hidden: `python dask_without_iotax.py scheduler|worker …`.

Hosts do not need iotax, so tests run their workers without it.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.modules["iotax"] = None
    from distributed.cli import dask_scheduler, dask_worker

    {"scheduler": dask_scheduler, "worker": dask_worker}[sys.argv[1]].main(sys.argv[2:])
