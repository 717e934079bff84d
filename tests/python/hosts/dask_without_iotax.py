"""Dask's scheduler or worker, `python dask_without_iotax.py scheduler|worker …`, with iotax hidden from it: hosts need
none."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.modules["iotax"] = None
    from distributed.cli import dask_scheduler, dask_worker

    {"scheduler": dask_scheduler, "worker": dask_worker}[sys.argv[1]].main(sys.argv[2:])
