"""Topology: what a protocol does not support, how guests are configured, and what their kernels must confirm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iotax.labs.vm import clients, preflight
from iotax.labs.vm.packages import Store
from iotax.labs.vm.preflight import findings
from iotax.labs.vm.topology import environment, facts_of, mismatches, path_uses, paths_used
from iotax.labs.vm.topology import of_clients as clients_told
from iotax.study import Settings, Study
from iotax.study.facts import planned_facts
from iotax.study.read import read_study
from iotax.study.source import StudyError

STUDY = """\
name: paths
question: Which path?
lab: vm
factors:
  protocol: PROTOCOL
baseline: {protocol: a}
"""


def parse(protocol: str, more: str = "") -> Study:
    return read_study("s.yaml", STUDY.replace("PROTOCOL", protocol) + more, Path("/studies"))


def settings(setup: str) -> Settings:
    return parse(f"{{a: {setup}}}").settings({"protocol": "a"})


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        ("{protocol: nfs3, paths: 2}", "an nfs3 mount goes to one address; `nconnect` gives it several connections"),
        ("{protocol: iser, paths: 2}", "several paths are for iscsi, fcp, nvme-tcp"),
        ("{protocol: iscsi, paths: 2}", "several paths need one of fixed, round-robin, queue-depth"),
        ("{protocol: nvme-tcp, paths: 2, path_policy: fixed}", "nvme-tcp has no policy fixed; it has numa"),
        ("{protocol: iscsi, path_policy: fixed}", "one path leaves nothing to choose"),
        ("{protocol: iscsi, nconnect: 4}", "iscsi is not an NFS mount"),
        ("{protocol: iscsi, io_queues: 2}", "iscsi has no I/O queues to choose"),
        ("{protocol: nvme-tcp, io_queues: 2}", "say `lab: {vm: {cpus: 2}}`"),
        ("{protocol: fcp, mtu: 9000}", "a Fibre Channel frame carries 2112 bytes at most"),
        ("{protocol: local, link_delay: 1ms}", "local I/O crosses no network"),
        ("{protocol: fc-nvme, link_rate: 1Gbit}", "fc-nvme runs over a loop within one kernel"),
        ("{protocol: iscsi, link_delay: 100ns}", "a whole number of microseconds"),
        (
            "{protocol: iscsi, target: ganesha}",
            "ganesha serves nfs3, nfs4.1 here, not iscsi; it has kernel, tgt, iotax",
        ),
        (
            "{protocol: fcp, target: iotax}",
            "iotax serves nfs3, nfs4.1, iscsi, nvme-tcp here, not fcp; it has kernel",
        ),
        ("{protocol: fcp, target: tgt}", "tgt serves iscsi here, not fcp; it has kernel"),
        ("{protocol: local, target: iotax}", "not local; local I/O has no target"),
        ("{protocol: iscsi, target: tgt, paths: 2, path_policy: fixed}", "tgt is set up on one address"),
        ("{protocol: iscsi, target: tgt, attach: nvme}", "datastores are set up on the kernel's targets"),
        ("{protocol: local, attach: vduse}", "local I/O has no initiator above which a virtual disk could stand"),
        ("{protocol: fcp, attach: vduse, mtu: 9000}", "a Fibre Channel frame carries 2112 bytes at most"),
        ("{protocol: nvme-tcp, attach: nvme, mtu: 9000}", "over none of the guests' links"),
        ("{protocol: fc-nvme, target_kernel: stock}", "fc-nvme runs over a loop within one kernel"),
        ("{protocol: local, target_kernel: stock}", "local I/O crosses no network"),
        (
            "{protocol: iscsi, target: scst}",
            "found 'scst'; one of kernel, ganesha, tgt, iotax, ./PATH/nvmf_tgt is expected",
        ),
        ("{protocol: nvme-tcp, target: nvmf_tgt}", "./PATH/nvmf_tgt is expected"),
        ("{protocol: nvme-tcp, target: ./spdk/build}", "./PATH/nvmf_tgt is expected"),
        (
            "{protocol: iscsi, target: ./nvmf_tgt}",
            "nvmf_tgt serves nvme-tcp here, not iscsi; it has kernel, tgt, iotax",
        ),
        ("{protocol: iscsi, kernel: 6.12}", 'a release stands in quotes, as "6.12"'),
        ("{protocol: iscsi, mtuu: 9000}", "unknown name, did you mean 'mtu'?"),
        ("{protocol: iscsy}", "unknown protocol 'iscsy', did you mean 'iscsi'?"),
    ],
)
def test_what_a_protocol_cannot_have_is_refused(setup: str, expected: str) -> None:
    with pytest.raises(StudyError) as caught:
        settings(setup)
    assert expected in str(caught.value)


def test_a_target_of_ones_own_is_found_from_the_studys_folder() -> None:
    asked = settings("{protocol: nvme-tcp, target: ./spdk/bin/nvmf_tgt}")
    assert asked.topology.target == "/studies/spdk/bin/nvmf_tgt"
    told = environment(asked, 1)
    assert "SERVER=nvmf_tgt; SERVER_PROGRAM=/opt/nvmf_tgt-" in told
    assert mismatches(asked, {"target": "nvmf_tgt"}) == []
    assert mismatches(asked, {"target": "kernel"}) == ["target is kernel on the target's port, nvmf_tgt was asked for"]


def test_a_virtual_disk_above_the_guests_kernel_leaves_it_all_that_its_initiator_can() -> None:
    found = settings("{protocol: nvme-tcp, attach: vduse, target: iotax, mtu: 9000}")
    assert (found.topology.attach, found.topology.by_hypervisor) == ("vduse", False)
    assert (found.topology.target, found.topology.mtu) == ("iotax", 9000)
    # Another virtual disk is another path to the volume, so the old path goes down first.
    assert environment(found, guests=2) != environment(settings("{protocol: nvme-tcp, target: iotax}"), guests=2)


def test_a_combination_may_be_excluded() -> None:
    factors = "{a: iscsi, b: nfs3}\n  data_digest: [false, true]"
    with pytest.raises(StudyError, match=r"nfs3 has no digests.*`exclude:` under design leaves a combination out"):
        parse(factors)
    excluded = parse(factors, "design: {exclude: [{protocol: b, data_digest: true}]}\n")
    assert excluded.settings({"protocol": "a", "data_digest": True}).connection.data_digest


def test_what_is_wrong_within_a_setup_is_all_that_is_said() -> None:
    with pytest.raises(StudyError) as caught:
        settings("{mtu: 9000}")
    assert caught.value.lines() == ["s.yaml:5:14: factors.protocol.a.protocol: missing"]


def test_loopback_has_no_topology() -> None:
    with pytest.raises(StudyError, match="the loopback lab has no network to shape"):
        read_study(
            "s.yaml", STUDY.replace("lab: vm\n", "").replace("PROTOCOL", "{a: {protocol: iscsi, mtu: 9000}}"), Path()
        )


def test_a_study_that_names_neither_target_nor_kernel_is_written_as_before_there_was_a_choice() -> None:
    written = parse("{a: {protocol: iscsi, mtu: 9000}}").model_dump_json()
    assert "target" not in written
    assert '"kernel"' not in written
    named = parse('{a: {protocol: iscsi, target: tgt, kernel: "6.12"}}')
    again = Study.model_validate_json(named.model_dump_json())
    found = again.settings({"protocol": "a"}).topology
    assert (found.target, found.kernel) == ("tgt", "6.12")


def test_targets_and_kernels_may_be_factors() -> None:
    study = parse("{a: iscsi}\n  target: [kernel, tgt]\n  kernel: [stock, '6.12']")
    found = study.settings({"protocol": "a", "target": "tgt", "kernel": "6.12"}).topology
    assert (found.target, found.kernel) == ("tgt", "6.12")


def test_one_guest_has_one_kernel() -> None:
    told = STUDY.replace("lab: vm", "lab: {vm: {guests: 1}}").replace("PROTOCOL", "{a: iscsi}")
    with pytest.raises(StudyError, match=r"topology\.target_kernel: both halves stand in one kernel"):
        read_study("s.yaml", told + 'topology: {target_kernel: "6.12"}\n', Path())


def test_a_setup_survives_the_notebook() -> None:
    study = parse("{a: {protocol: iscsi, paths: 2, path_policy: fixed, link_rate: 100Mbit}, b: nfs3}")
    again = Study.model_validate_json(study.model_dump_json())
    assert again.digest() == study.digest()
    found = again.settings({"protocol": "a"}).topology
    assert (found.paths, found.path_policy, found.link_rate, found.mtu) == (2, "fixed", 100_000_000, 1500)
    assert again.settings({"protocol": "b"}).topology.paths == 1


SETUP = "{protocol: iscsi, paths: 2, path_policy: round-robin, link_rate: 20Mbit, link_delay: 500us}"
CONFIRMED = [
    "FACT mtu=1500",
    "FACT link_rate=20Mbit",
    "FACT link_delay=499us",
    "FACT header_digest=0",
    "FACT data_digest=0",
    "FACT paths=2",
    "FACT path_policy=round-robin",
]


def test_guests_are_told_in_units_of_their_tools() -> None:
    told = environment(settings(SETUP), guests=2)
    assert "LINK_RATE=20000000; LINK_DELAY=500; " in told
    assert "PATHS=2; PATH_POLICY=round-robin; " in told
    assert "ONE_GUEST=; " in told


def test_the_kernel_must_confirm_what_was_asked_for() -> None:
    asked = settings(SETUP)
    assert mismatches(asked, facts_of(CONFIRMED)) == []
    wrong = [
        line.replace("round-robin", "fixed").replace("20Mbit", "25Mbit") for line in CONFIRMED if "delay" not in line
    ]
    assert mismatches(asked, facts_of(wrong)) == [
        "link_rate is 25Mbit in the initiator, 20Mbit was asked for",
        "link_delay is not to be found in the initiator, 500us was asked for",
        "path_policy is fixed in the initiator, round-robin was asked for",
    ]


def test_a_digest_that_nobody_asked_for_is_a_mismatch() -> None:
    facts = facts_of(["FACT mtu=1500", "FACT header_digest=1", "FACT data_digest=0"])
    assert mismatches(settings("{protocol: iscsi}"), facts) == [
        "header_digest is on in the initiator, off was asked for"
    ]


def test_another_server_or_kernel_than_was_asked_for_is_a_mismatch() -> None:
    asked = settings('{protocol: iscsi, target: tgt, kernel: "6.1"}')
    digests = ["FACT header_digest=0", "FACT data_digest=0"]
    good = facts_of(["FACT kernel=6.1.0-56-amd64", "FACT target=tgt", *digests])
    assert mismatches(asked, good) == []
    wrong = facts_of(["FACT kernel=6.12.117+deb12-amd64", "FACT target=kernel", *digests])
    assert mismatches(asked, wrong) == [
        "target is kernel on the target's port, tgt was asked for",
        "kernel is 6.12.117+deb12-amd64 in the initiator, 6.1 was asked for",
    ]


def test_the_storage_s_kernel_is_confirmed_apart() -> None:
    asked = settings('{protocol: nfs3, kernel: "6.1", target_kernel: "6.12"}')
    good = facts_of(["FACT kernel=6.1.0-56-amd64", "FACT target_kernel=6.12.117+deb12-amd64"])
    assert mismatches(asked, good) == []
    assert mismatches(asked, good | {"target_kernel": "6.1.0-56-amd64"}) == [
        "target_kernel is 6.1.0-56-amd64 in the storage guest, 6.12 was asked for"
    ]


def test_paths_count_from_before_the_load() -> None:
    before, after = (
        path_uses(["PATH sda 10 4096", "PATH sdb 5 0"]),
        path_uses(["PATH sda 110 8192", "", "PATH sdb 95 1"]),
    )
    used = paths_used(settings(SETUP), before, after)
    assert used is not None
    assert (used.policy, used.even) == ("round-robin", True)
    assert [(each.name, each.ios, each.bytes) for each in used.used] == [("sda", 100, 4096), ("sdb", 90, 1)]
    assert paths_used(settings("{protocol: iscsi}"), {}, path_uses(["PATH sda 10 4096"])) is None


@pytest.mark.parametrize(("release", "kind"), [("6.1.0-56-amd64", "error"), ("6.12.1-amd64", "ok")])
def test_a_kernel_too_old_for_a_policy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str, kind: str
) -> None:
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path))
    monkeypatch.setattr(Store, "kernel_package", lambda *_: f"linux-image-{release}")
    asked = settings("{protocol: nvme-tcp, paths: 2, path_policy: queue-depth}")
    found = [each for each in findings([asked], 1 << 20) if each.subject == "kernel"]
    assert [each.kind for each in found] == [kind]
    assert release in found[0].message


CLIENTS = """\
name: clients
question: Does it scale?
lab: LAB
volume: {size: SIZE}
factors: {protocol: [PROTOCOL], clients: [1, CLIENTS]}
baseline: {protocol: PROTOCOL}
"""


def of_clients(
    clients: int = 2, protocol: str = "iscsi", lab: str = "vm", size: str = "16MiB", more: str = ""
) -> Study:
    text = CLIENTS.replace("LAB", lab).replace("SIZE", size).replace("PROTOCOL", protocol)
    return read_study("s.yaml", text.replace("CLIENTS", str(clients)) + more, Path("/studies"))


@pytest.mark.parametrize("more", ["", "topology: {attach: vduse}\n"])
def test_every_network_protocol_of_the_kernel_may_have_eight_clients(more: str) -> None:
    for protocol in ("nfs3", "nfs4.1", "iscsi", "nvme-tcp"):
        study = of_clients(8, protocol, more=more)
        assert study.settings({"clients": 8}).load.clients == 8


@pytest.mark.parametrize(
    ("study", "expected"),
    [
        ({"clients": 9}, "8 initiator guests at most"),
        ({"protocol": "fc-nvme"}, "several clients are for nfs3, nfs4.1, iscsi, nvme-tcp"),
        ({"protocol": "iser"}, "iser is set up on one link"),
        ({"protocol": "local"}, "local I/O crosses no network"),
        ({"lab": "{vm: {guests: 1}}"}, "several clients need `guests: 2`"),
        ({"clients": 8, "size": "4MiB"}, "8 clients share a volume of 4MiB and need 8MiB"),
        ({"more": "load: {working_set: 12MiB}"}, "2 clients share a volume of 16MiB and need 24MiB"),
        ({"more": "topology: {attach: nvme}"}, "several clients have a link each to the kernel's targets"),
        ({"more": "topology: {paths: 2, path_policy: fixed}"}, "compare paths in a study of its own"),
    ],
)  # fmt: skip
def test_what_several_clients_cannot_have_is_refused(study: dict[str, Any], expected: str) -> None:
    with pytest.raises(StudyError) as caught:
        of_clients(**study)
    assert expected in str(caught.value)


def test_each_of_several_clients_is_told_which_it_is_and_one_alone_is_not() -> None:
    study = of_clients()
    both, alone = (environment(study.settings({"clients": clients}), guests=2) for clients in (2, 1))
    assert clients_told(both, 2) == [f"{both}CLIENT=0; ", f"{both}CLIENT=1; "]
    assert "CLIENTS=2; " in both
    assert clients_told(alone, 1) == [alone]


def test_clients_with_volumes_of_their_own_are_told_how_many_and_divide_none() -> None:
    more = "factors: {protocol: [iscsi], clients: [1, 8], volumes: [shared, per client]}"
    text = CLIENTS.replace("LAB", "vm").replace("SIZE", "4MiB").replace("PROTOCOL", "iscsi")
    text = text.replace("factors: {protocol: [iscsi], clients: [1, CLIENTS]}", more)
    study = read_study("s.yaml", f"{text}design: {{exclude: [{{clients: 8, volumes: shared}}]}}\n", Path("/studies"))
    own = study.settings({"clients": 8, "volumes": "per client"})
    assert "VOLUMES=8; " in environment(own, guests=2)
    assert planned_facts(study, own).volumes == 8
    alone = study.settings({"clients": 1, "volumes": "per client"})
    assert "VOLUMES=1; " in environment(alone, guests=2)


def test_a_client_begins_where_its_part_of_the_volume_does_or_its_own_volume() -> None:
    def begins(size: str) -> list[tuple[object, object]]:
        asked = of_clients(size=size).settings({"clients": 2})
        documents = [clients.document(asked, "/dev/sda", number, sharing=2, seed=7) for number in range(2)]
        return [(each["working_set_offset_bytes"], each["working_set_bytes"]) for each in documents]

    assert begins("16MiB") == [(0, 8 << 20), (8 << 20, 8 << 20)]
    assert begins("16MiB, volumes: per client") == [(0, 16 << 20), (0, 16 << 20)]


def test_a_study_that_does_not_speak_of_volumes_keeps_its_digest() -> None:
    assert "volumes" not in of_clients().model_dump_json()
    assert '"volumes":"per client"' in of_clients(size="16MiB, volumes: per client").model_dump_json()


def test_a_volume_for_each_client_needs_several() -> None:
    with pytest.raises(StudyError, match="one client has the volume to itself"):
        parse("{a: iscsi}", "volume: {volumes: per client}\n")


def test_guests_that_do_not_fit_into_memory_are_refused_and_few_processors_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight, "memory_free_bytes", lambda: 3 << 30)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    settings = [of_clients(8).settings({"clients": 8})]
    found = {each.subject: each for each in findings(settings, 16 << 20)}
    assert found["memory"].kind == "error"
    assert "9 guests need" in found["memory"].message
    assert "fewer `clients:`" in found["memory"].message
    assert found["processors"].kind == "warning"
    assert "9 guests share 2" in found["processors"].message
    assert "processors" not in {each.subject for each in findings([of_clients(2).settings({"clients": 1})], 16 << 20)}
