"""The study that `iotax init` writes."""

import re

from iotax.study.model import NAME

_SCHEMA = "# yaml-language-server: $schema=study.schema.json\n"


def from_study(text: str, name: str) -> str:
    """A built-in study as a user's own file, named after the file if that is a valid name."""
    if re.fullmatch(NAME, name):
        text = re.sub(r"^name: .*$", f"name: {name}", text, count=1, flags=re.MULTILINE)
    return _SCHEMA + text


TEMPLATE = f"""\
{_SCHEMA}\
name: my-study
question: What does each 4 KiB I/O cost over iSCSI and NVMe/TCP?

# Where trials run. loopback: this machine, in user space, without root. To set more, write it as
# lab: {{loopback: {{driver: epoll, threads: 2}}}}
lab: loopback

# The volume behind every embedded protocol. media: memory, file (with `path:`), model (with `service:`) or null.
# refill puts the pattern back: never, before each block, or before each trial.
volume: {{size: 512MiB, media: memory, fill: pattern, refill: block}}

# What varies. Any field of load, volume or connection can stand here, with a list of levels; then leave it out below.
# Levels of protocol are embedded (local, nfs3, iscsi, nvme-tcp), or labels with endpoints of your own:
#   protocol:
#     array-nvme: "nvme-tcp://192.0.2.10:4420/nqn.2014-08.org.example:vol1?ns=1"
#     array-iscsi: "iscsi://192.0.2.10/iqn.2001-05.org.example:vol1/0"
#     filer: "nfs://192.0.2.11/export/file"
#     disk: /dev/nvme1n1
# iotax writes only to what holds zeros or its own pattern, unless `--destroy ENDPOINT` names that very endpoint.
factors:
  protocol: [local, iscsi, nvme-tcp]
  outstanding: [1, 8, 32]

# fio's words: outstanding is iodepth, workers is numjobs. Total outstanding I/O = workers x outstanding.
load:
  block_size: 4KiB      # k, m, g are binary
  read: 75%
  random: 100%
  warmup: 1s
  runtime: 5s
  verify: true          # check the data of every read

# Each replicate is a complete block: every treatment once, in random order.
design: {{replicates: 3, blocks: replicate, seed: 42}}

baseline: {{protocol: iscsi}}         # counts as 100
responses: [iops, latency, cpu_per_io]
margin: 5%                          # what counts as equivalent, fixed before any data
"""
