"""The settings of a study that `plan` prints."""

from pathlib import Path

from iotax.study.asked import asked
from iotax.study.read import builtin_studies, load_study, read_study

ARRAYS = """\
name: arrays
question: Which array?
volume: {size: 128MiB, refill: trial}
factors:
  protocol: {a: "nvme-tcp://h/nqn.x?ns=1", b: "iscsi://h/iqn.2001-05.x/0"}
  verify: [true, false]
  workers: [2, 4, 8]
load:
  rate_iops: 70k
  outstanding: 8
  working_set: 64MiB
  streams: {r: {block_size: 8KiB, share: 70%}, s: {random: 0%, read: 50%, share: 30%}}
connection: {chap: {user: joe, secret_file: /x}, header_digest: true}
links: {a: {rate: 25GbE, mtu: 9000}}
exclude: [errors, achieved]
baseline: {protocol: b}
margin: 3%
"""


def test_the_settings_of_quick_are_said_in_full() -> None:
    assert asked(load_study("quick")[0]) == [
        "Load: 1 worker × 1, 8 or 32 outstanding on 1 thread; closed loop; measured in 8 slices of 250ms a session; "
        "reads verified.",
        "Mix: blocks of 4KiB, 75% read, 100% random.",
        "Volume: 512MiB, memory; filled with pattern, refilled before each block.",
        "Lab: loopback (driver auto, threads 1).",
        "Compared: iops, latency, cpu_per_io; baseline protocol iscsi; equivalent within 5%.",
    ]


def test_everything_that_a_study_sets_is_said() -> None:
    assert asked(read_study("arrays.yaml", ARRAYS, Path("/"))) == [
        "Load: 2, 4 or 8 workers × 8 outstanding on 1 thread; open loop of 70000 IOPS, constant arrivals, "
        "backlog 65536; warm-up 1s, measured 5s; working set 64MiB; reads verified or not.",
        "Mix: r (8KiB, 100% read, 100% random, share 70%) + s (4KiB, 50% read, 0% random, share 30%).",
        "Volume: 128MiB of each endpoint; filled with pattern, refilled before each trial.",
        "Endpoints: a is nvme-tcp://h/nqn.x?ns=1; b is iscsi://h/iqn.2001-05.x/0.",
        "Connection: header_digest on; chap as joe.",
        "Lab: loopback (driver auto, threads 1).",
        "Links: a over 25GbE, MTU 9000.",
        "Compared: iops, latency, cpu_per_io; baseline protocol b; equivalent within 3%; runs left out by errors, "
        "achieved.",
    ]


def test_a_setup_is_said_beside_its_label() -> None:
    said = asked(load_study("tr-3808")[0])
    assert any("FC fixed is fcp with paths 2, path_policy fixed; " in line for line in said)
    assert "iSCSI jumbo is iscsi with mtu 9000; " in "".join(said)


def test_every_built_in_study_says_its_load_mix_volume_and_lab() -> None:
    for name in builtin_studies():
        titles = [line.partition(":")[0] for line in asked(load_study(name)[0])]
        assert set(titles) >= {"Load", "Mix", "Volume", "Lab", "Compared"}, name
