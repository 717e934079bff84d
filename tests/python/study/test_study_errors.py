"""All errors in a study file are reported at once: line, field, what was found, the nearest valid name."""

from pathlib import Path

import pytest

from iotax.study.read import load_study, read_study
from iotax.study.source import StudyError

EVERYTHING_WRONG = """\
name: bad name!
question: 4
volumes: {size: 1g}
lab: loopbak
volume: {siz: 3, media: memry, fill: 65%}
factors:
  protocol: [local, nfs, iscsi, nvme://x/y]
  blocksize: [4k]
  block_size: [4KiB, true, 4q]
  outstanding: 5
  read: []
load: {red: 75%, runtime: 10 parsecs, read: 101%}
design: {replicates: 0}
baseline: {protocl: iscsi}
responses: [iop]
margin: many
margin: 4
"""

SAID = """\
bad.yaml:1:1: name: found 'bad name!': use letters, digits, dots and dashes, 64 at most
bad.yaml:2:1: question: found 4: write text, such as '4' in quotes
bad.yaml:3:1: volumes: unknown name, did you mean 'volume'?; a study has name, question, lab, volume, factors, load, \
connection, topology, links, design, precondition, search, events, baseline, floor, responses, margin, exclude, \
published
bad.yaml:4:1: lab.loopbak: unknown name, did you mean 'loopback'?; lab has loopback, vm, hosts, sim
bad.yaml:5:10: volume.siz: unknown name, did you mean 'size'?; volume has size, media, path, fill, refill, \
compress, dedupe, dedupe_block, delay, burn, volumes, servers, service, distribution, p99, service_times, \
collect, collect_every, seek, rpm, cache, destage, parity, raid_group
bad.yaml:5:18: volume.media: found 'memry', did you mean 'memory'?; one of memory, file, null, model is expected
bad.yaml:5:32: volume.fill: found '65%'; one of pattern, zeros is expected
bad.yaml:7:21: factors.protocol[2]: unknown protocol 'nfs', did you mean 'nfs3'?; protocols are local, nfs3, \
nfs4.1, iscsi, nvme-tcp, fcp, fc-nvme
bad.yaml:7:33: factors.protocol[4]: 'nvme://x/y' is an endpoint: give it a label, `protocol: {array: 'nvme://x/y', …}`
bad.yaml:8:3: factors.blocksize: unknown factor, did you mean 'block_size'?; factors are protocol, streams, \
block_size, read, random, shared, outstanding, workers, threads, clients, working_set, warmup, runtime, verify, \
durable, fsync, rate_iops, arrivals, backlog, generator, size, media, fill, delay, burn, volumes, servers, service, \
distribution, p99, collect, collect_every, seek, rpm, cache, destage, parity, raid_group, initiator, header_digest, \
data_digest, polling, chap, dhchap, uid, gid, mtu, link_rate, link_delay, paths, path_policy, path_retry, \
nconnect, io_queues, queue_depth, attach, aio, disk_cache, disk_queues, iothread, target, \
kernel, target_kernel, encryption, keep_alive, \
replacement_timeout, reconnect_delay, timeo, costs, vms, luns, adapter_depth, credits, loss, \
port_buffer, coalesce, switches, trunk_rate, trunk_credits, paths_to, interconnect_rate, interconnect_delay, \
interconnect_cpu, takeover
bad.yaml:9:22: factors.block_size[2]: found true: not a size; write it as 4KiB, 4k or 4096 (k, m, g, t are binary)
bad.yaml:9:28: factors.block_size[3]: found '4q': not a size; write it as 4KiB, 4k or 4096 (k, m, g, t are binary)
bad.yaml:10:3: factors.outstanding: a factor has a list of levels, found 5; write [5, …]
bad.yaml:11:3: factors.read: empty: give at least one
bad.yaml:12:8: load.red: unknown name, did you mean 'read'?; load has block_size, read, random, shared, outstanding, \
workers, threads, clients, working_set, warmup, runtime, transactions, verify, durable, fsync, \
rate_iops, arrivals, backlog, streams, oltp, generator, command
bad.yaml:12:18: load.runtime: found '10 parsecs': not a duration; write it as 500ms, 2s or 5min
bad.yaml:12:39: load.read: found '101%': a percentage lies between 0% and 100%
bad.yaml:13:10: design.replicates: found 0: 1 is the least
bad.yaml:14:12: baseline.protocl: not a factor of this study, did you mean 'protocol'?
bad.yaml:15:13: responses[1]: found 'iop', did you mean 'iops'?; one of iops, latency, cpu_per_io, \
cpu_initiator, cpu_target, cpu_hypervisor, cpu_machine, cpu_utilisation_initiator, cpu_utilisation_target, \
cpu_utilisation_hypervisor, cpu_utilisation_machine, transactions, cpu_per_transaction, disk_iops, \
longest_gap, slow_ios, recovery_time, iops_after is expected
bad.yaml:17:1: margin: given twice, first in line 16
"""

GOOD = """\
name: good
question: Is it good?
factors:
  protocol: [local, iscsi]
  outstanding: [1, 8]
baseline: {protocol: iscsi}
"""


def said(text: str) -> list[str]:
    with pytest.raises(StudyError) as caught:
        read_study("s.yaml", text, Path("/studies"))
    return caught.value.lines()


def test_every_problem_of_a_file_is_said_at_once() -> None:
    with pytest.raises(StudyError) as caught:
        read_study("bad.yaml", EVERYTHING_WRONG, Path("/studies"))
    assert str(caught.value) + "\n" == SAID


def test_the_good_study_is_good() -> None:
    assert list(read_study("s.yaml", GOOD, Path("/studies")).levels()) == ["protocol", "outstanding"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("name: good\n", "", "s.yaml:1:1: name: missing"),
        (
            "  outstanding: [1, 8]",
            "  outstanding: [1, 8]\nvolume: {size: 16KiB}",
            "s.yaml:6:10: volume.size: 16KiB cannot hold all I/Os in flight at once: "
            "workers × outstanding × block_size is 32KiB",
        ),
        ("[1, 8]", "[1, 8, 1]", "s.yaml:5:23: factors.outstanding[3]: the level 1 is given twice"),
        ("[1, 8]", "[0]", "s.yaml:5:17: factors.outstanding[1]: found 0: 1 is the least"),
        ("[1, 8]", "[1.5]", "s.yaml:5:17: factors.outstanding[1]: found 1.5: write a whole number"),
        ("[1, 8]", "", "s.yaml:5:3: factors.outstanding: a factor has a list of levels, found nothing"),
        ("[local, iscsi]", '[iscsi, {a: "nvme-tcp://h/nqn.x?ns=1"}]', "s.yaml:4:21: factors.protocol[2]: a label "
         "within a list: write a list of protocols, or a mapping of labels only, in which a protocol is its own label: "
         "{iscsi: iscsi, a: nvme-tcp://h/nqn.x?ns=1}"),
        ("[local, iscsi]", "{local, iscsi: iscsi}", "s.yaml:4:14: factors.protocol.local: a label without a meaning; "
         "write `local: local`"),
        ("[local, iscsi]", "{}", "s.yaml:4:3: factors.protocol: empty: give at least one"),
        ("{protocol: iscsi}", "{protocol: nfs3}", "s.yaml:6:12: baseline.protocol: nfs3 is not a level of protocol; "
         "its levels are local, iscsi"),
        ("{protocol: iscsi}", "{block_size: 4k}", "s.yaml:6:12: baseline.block_size: not a factor of this study; "
         "its factors are protocol, outstanding"),
        ("{protocol: iscsi}", "{}", "s.yaml:6:1: baseline: empty: name the level that counts as 100, such as "
         "`protocol: iscsi`"),
        ("baseline", "load: {outstanding: 4}\nbaseline", "s.yaml:6:8: load.outstanding: this is a factor too; leave it "
         "out here"),
        ("baseline", "load: {block_size: 1000}\nbaseline", "s.yaml:6:8: load.block_size: 1000B is not a multiple "
         "of 512 bytes"),
        ("baseline", "load: {working_set: 2g}\nbaseline", "s.yaml:6:8: load.working_set: the working set (2GiB) is "
         "larger than the volume (1GiB)"),
        ("baseline", "load: {threads: 2}\nbaseline", "s.yaml:6:8: load.threads: 2 threads cannot share 1 workers; at "
         "most one for each worker"),
        ("baseline", "load: {runtime: 0s}\nbaseline", "s.yaml:6:8: load.runtime: nothing can be measured in no time"),
        ("baseline", "volume: {media: file}\nbaseline", "s.yaml:6:10: volume.media: media: file needs `path:`, the "
         "file that holds the volume"),
        ("baseline", "volume: {media: null}\nbaseline", "s.yaml:6:10: volume.media: a null volume forgets what "
         "is written; say `verify: false` under load"),
        ("baseline", "design: {replicates: 99999}\nbaseline", "s.yaml:3:1: factors: 399996 trials are more than "
         "100000; leave out levels or replicates"),
        ("baseline", "load: {read: 0.75}\nbaseline", "s.yaml:6:8: load.read: found 0.75: a fraction of 1 or a "
         "percentage? Write 75% or 0.75%"),
        ("baseline", "load: {random: 1.0}\nbaseline", "s.yaml:6:8: load.random: found 1.0: a fraction of 1 or a "
         "percentage? Write 100% or 1.0%"),
        ("baseline", "margin: 0.05\nbaseline", "s.yaml:6:1: margin: found 0.05: a fraction of 1 or a percentage? Write "
         "5% or 0.05%"),
        ("baseline", "design: {stop: {half_width: 0.03}}\nbaseline", "s.yaml:6:17: design.stop.half_width: found 0.03: "
         "a fraction of 1 or a percentage? Write 3% or 0.03%"),
        ("baseline", "search: {latency_max: 1ms, percentile: 0.99}\nbaseline", "s.yaml:6:28: search.percentile: found "
         "0.99: a fraction of 1 or a percentage? Write 99% or 0.99%"),
        ("  outstanding: [1, 8]", "  read: [0.5, 100%]", "s.yaml:5:10: factors.read[1]: found 0.5: a fraction of 1 or "
         "a percentage? Write 50% or 0.5%"),
        ("[1, 8]", "[1, 8", "s.yaml:6:9: not valid YAML: expected ',' or ']', but got ':' while parsing a flow "
         "sequence"),
    ],
)  # fmt: skip
def test_one_problem_is_said_with_its_line(before: str, after: str, expected: str) -> None:
    assert before in GOOD
    assert expected in said(GOOD.replace(before, after))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("nvme-tcp://host/nqn.x", "the namespace is missing (ns=1 and up)"),
        ("nvme-tcp://host/?ns=1", "the subsystem's NQN is missing"),
        ("nvme-tcp://host:x/nqn.x?ns=1", "Port could not be cast"),
        ("iscsi:///iqn.x/0", "the host is missing"),
        ("iscsi://host/iqn.x", "the target name or the LUN is missing"),
        ("iscsi://host/disk/0", "'disk' is not an iSCSI name"),
        ("iscsi://host/iqn.x/a", "the LUN 'a' is not a number"),
        ("nfs://host/export", "the export or the file is missing"),
        ("nfs41://host/export", "the export or the file is missing"),
        ("nfs://host/export/file?port=1", "?port= means nothing here"),
        ("smb://host/share", "smb:// is not a protocol that iotax speaks"),
        ("nfs4", ", did you mean 'nfs4.1'?"),
    ],
)
def test_an_endpoint_that_is_none_is_explained(target: str, expected: str) -> None:
    [line] = said(GOOD.replace("[local, iscsi]", f'{{a: "{target}", iscsi: iscsi}}'))
    assert line.startswith("s.yaml:4:14: factors.protocol.a: ")
    assert expected in line


@pytest.mark.parametrize("target", ["nvme-tcp://10.0.0.5/", "guest-disk://", "kernel:nfs://10.0.0.5"])
def test_an_endpoint_that_is_none_on_hosts_has_one_error(target: str) -> None:
    text = GOOD.replace("[local, iscsi]", f'{{a: "{target}", iscsi: "iscsi://host/iqn.2001-05.org.x:y/0"}}')
    [line] = said(f"{text}lab: {{hosts: {{initiators: [{{name: h1, address: 192.0.2.1}}]}}}}\nvolume: {{size: 1GiB}}\n")
    assert line.startswith(f"s.yaml:4:14: factors.protocol.a: '{target}': the ")


def test_a_study_that_is_no_mapping_is_refused() -> None:
    assert said("- a\n") == ["s.yaml: a study is a mapping that begins with `name:`; `iotax init` writes one"]
    assert said("") == said("- a\n")


def test_an_anchor_that_holds_itself_ends() -> None:
    assert any("nested too deeply" in line for line in said("a: &a\n  b: *a\n"))


def test_an_unknown_study_gets_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="did you mean 'quick'"):
        load_study("quik")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudyError, match="not a text file in UTF-8"):
        load_study(str(tmp_path / "binary.yaml"))


def test_levels_in_place_of_a_setting_are_sent_to_the_factors() -> None:
    text = "name: x\nquestion: q\nfactors: {protocol: [iscsi, nfs3]}\nbaseline: {protocol: iscsi}\n"
    text += "load: {outstanding: [1, 8]}\n"
    with pytest.raises(StudyError) as caught:
        read_study("s.yaml", text, Path("/studies"))
    assert caught.value.lines() == [
        "s.yaml:5:8: load.outstanding: a list of levels belongs under factors: `factors: {outstanding: […]}`"
    ]


def test_a_study_nested_beyond_all_sense_ends_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("a: " + "[" * 20_000, encoding="utf-8")
    with pytest.raises(StudyError, match="nested too deeply"):
        load_study(str(path))


def test_an_error_that_two_rules_find_is_told_once() -> None:
    text = """name: x
question: "?"
topology: {paths: 2}
factors: {protocol: {a: "iscsi://127.0.0.1/iqn.2026-11.a:b/0", b: "iscsi://127.0.0.1/iqn.2026-11.a:c/0"}}
baseline: {protocol: a}
"""
    with pytest.raises(StudyError) as refused:
        read_study("x", text, Path())
    assert [problem.field() for problem in refused.value.problems] == ["topology.paths"]
