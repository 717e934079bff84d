"""Settings of a study for kernel paths of a host: MTU, policy, connections. They are set, read back and restored."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.paths import attached_of, mismatches, words
from iotax.study import Study
from iotax.study.endpoint import parse_endpoint
from iotax.study.rules import broken_rules

from .fake_host import FakeHost
from .test_kernel_paths import ISCSI, NQN, NVME, SCRIPT, host, study

__all__ = ["host"]
WWPN = "50060e8012345678"
FC = f"kernel:fc://{WWPN}/7"
FC_NVME = f"kernel:fc-nvme://{WWPN}/nqn.2014-08.org.example:vol?ns=1"
NFS = "kernel:nfs://10.0.0.5/export/data?vers=4.1"
TWO = f"{NVME}&portals=10.0.2.5"
SERVICE_TIME = "service-time 0 2 2 8:16 1 1 8:32 1 1"


def up(host: FakeHost, uri: str, **topology: Any):
    """The finished script, the facts it reported, and the mismatches with the settings."""
    settings = study(uri, topology=topology).settings({"protocol": "a"})
    done = host.run(SCRIPT, "up", *words(uri, settings))
    facts = attached_of("h1", done.stdout).facts if done.returncode == 0 else {}
    return done, facts, mismatches(uri, settings, facts) if facts else []


def broken(uri: str, **topology: Any) -> list[str]:
    return [message for _, message in broken_rules(study(uri, topology=topology))]


@pytest.mark.parametrize("uri", [NVME, ISCSI, NFS])
def test_an_mtu_is_set_proved_to_reach_the_other_end_and_put_back(host: FakeHost, uri: str) -> None:
    mtu = host.network(mtu=1500, beyond=9000)
    done, facts, wrong = up(host, uri, mtu=9000)
    assert done.returncode == 0, done.stderr
    assert (facts["mtu"], mtu.read_text(), wrong) == ("9000", "9000\n", [])
    assert any(line.startswith("ping -M do -c 2 -W 2 -s 8972 ") for line in host.log)
    assert host.run(SCRIPT, "down").returncode == 0
    assert mtu.read_text() == "1500\n"
    assert host.journal == []


def test_the_way_to_each_portal_gets_the_mtu(host: FakeHost) -> None:
    mtu = host.network(mtu=1500, beyond=9000)
    done, facts, wrong = up(host, TWO, mtu=9000)
    assert (done.returncode, facts["mtu"], wrong) == (0, "9000", []), done.stderr
    proved = [line.split()[-1] for line in host.log if line.startswith("ping -M do ")]
    assert proved == ["10.0.0.5", "10.0.2.5"]
    assert host.run(SCRIPT, "down").returncode == 0
    assert mtu.read_text() == "1500\n"


def test_an_mtu_that_the_way_does_not_carry_is_refused_and_put_back(host: FakeHost) -> None:
    mtu = host.network(mtu=1500, beyond=1500)
    done, _, _ = up(host, NVME, mtu=9000)
    assert done.stderr.startswith("usage frames of 9000 bytes do not reach 10.0.0.5 over eth9")
    assert mtu.read_text() == "1500\n"
    assert host.journal == []
    assert not any("nvme connect" in line for line in host.log)
    # A setting that is already right is left alone, but still verified.
    before = len(host.log)
    assert up(host, NVME, mtu=1500)[0].returncode == 0
    assert not any("link set" in line for line in host.log[before:])
    assert any("-s 1472" in line for line in host.log[before:])


def test_an_mtu_is_put_back_after_a_crash_by_whoever_comes_next(host: FakeHost) -> None:
    mtu = host.network(mtu=1500, beyond=9000)
    up(host, NFS, mtu=9000)
    assert len(host.journal) == 1
    assert host.run(SCRIPT, "clean").returncode == 0
    assert (mtu.read_text(), host.journal) == ("1500\n", [])


def test_nvme_takes_all_portals_and_its_policy_is_read_back(host: FakeHost) -> None:
    done, facts, wrong = up(host, TWO, path_policy="round-robin")
    assert done.returncode == 0, done.stderr
    assert (facts["path_policy"], facts["paths"], wrong) == ("round-robin", "2", [])
    assert [line for line in host.log if line.startswith("nvme connect")] == [
        f"nvme connect -t tcp -a {address} -s 4420 -n {NQN}" for address in ("10.0.0.5", "10.0.2.5")
    ]
    host.run(SCRIPT, "down")
    assert list((host.folder / "sys/class/nvme").iterdir()) == []


def test_a_path_that_is_missing_fails(host: FakeHost) -> None:
    _, facts, _ = up(host, NVME)
    settings = study(TWO, topology={"path_policy": "numa"}).settings({"protocol": "a"})
    assert mismatches(TWO, settings, facts) == [
        "path_policy is not to be found, numa was asked for",
        "paths is 1, 2 was asked for",
    ]


def test_dm_multipath_gets_its_policy_and_its_table_back(host: FakeHost) -> None:
    host.fibre_channel(WWPN, 7)
    table = host.multipath("sdq")
    before = table.read_text()
    done, facts, wrong = up(host, FC, path_policy="queue-depth")
    assert done.returncode == 0, done.stderr
    assert (facts["path_policy"], facts["paths"], wrong) == ("queue-depth", "2", [])
    assert table.read_text() == before.replace(SERVICE_TIME, "queue-length 0 2 1 8:16 1 8:32 1")
    assert attached_of("h1", done.stdout).device == "/dev/dm-3"
    host.run(SCRIPT, "down")
    assert (table.read_text(), host.journal) == (before, [])


def test_one_path_carries_all_of_a_fixed_policy_as_long_as_it_works(host: FakeHost) -> None:
    host.fibre_channel(WWPN, 7)
    table = host.multipath("sdq")
    before = table.read_text()
    done, facts, wrong = up(host, FC, path_policy="fixed")
    assert done.returncode == 0, done.stderr
    assert (facts["path_policy"], facts["paths"], wrong) == ("fixed", "2", [])
    groups = "2 1 round-robin 0 1 1 8:16 1 round-robin 0 1 1 8:32 1"
    assert table.read_text() == f"0 16384 multipath 1 queue_if_no_path 1 alua {groups}\n"
    host.run(SCRIPT, "down")
    assert (table.read_text(), host.journal) == (before, [])


def test_one_path_has_no_policy(host: FakeHost) -> None:
    host.fibre_channel(WWPN, 7)
    assert "has no multipath device" in up(host, FC, path_policy="round-robin")[0].stderr
    assert host.journal == []


def test_a_lun_over_fibre_channel_is_found_by_its_wwpn_and_stays(host: FakeHost) -> None:
    host.fibre_channel(WWPN, 7)
    done, facts, _ = up(host, FC)
    assert done.returncode == 0, done.stderr
    attached = attached_of("h1", done.stdout)
    assert (attached.device, attached.identity) == ("/dev/sdq", "naa.600a0980")
    assert facts["link_speed_host5"] == "32 Gbit"
    host.run(SCRIPT, "down")
    assert (host.folder / "sys/class/fc_transport/target5:0:0/device/5:0:0:7/block/sdq").is_dir()
    assert not any("tee" in line for line in host.log)


def test_a_lun_that_a_rescan_brings_goes_again(host: FakeHost) -> None:
    host.fibre_channel(WWPN, None)
    assert up(host, FC)[0].returncode == 0
    assert (host.folder / "sys/class/scsi_host/host5/scan").read_text() == "- - 7\n"
    assert host.run(SCRIPT, "down").returncode == 0
    assert not (host.folder / "sys/class/fc_transport/target5:0:0/device/5:0:0:7/block/sdq").exists()
    assert host.journal == []


def test_a_queue_depth_is_set_on_every_path_read_back_and_put_back(host: FakeHost) -> None:
    host.fibre_channel(WWPN, 7)
    host.multipath("sdq")
    depths = [host.write(f"block/{disk}/device/queue_depth", "32") for disk in ("sdq", "sdr")]
    for disk in ("sdq", "sdr"):
        host.write(f"block/{disk}/device/wwid", "naa.600a0980  ")
    done, facts, wrong = up(host, FC, queue_depth=64)
    assert (done.returncode, facts["queue_depth"], wrong) == (0, "64", []), done.stderr
    assert [each.read_text() for each in depths] == ["64\n", "64\n"]
    # Meanwhile the name of one disk went to another disk.
    host.write("block/sdr/device/wwid", "naa.another")
    assert host.run(SCRIPT, "down").returncode == 0
    assert [each.read_text() for each in depths] == ["32\n", "64\n"]
    assert host.journal == []


def test_a_queue_depth_that_the_kernel_does_not_take_fails(host: FakeHost) -> None:
    host.add("tee", "cat >/dev/null")
    done, _, wrong = up(host, ISCSI, queue_depth=128)
    assert (done.returncode, wrong) == (0, ["queue_depth is 32, 128 was asked for"]), done.stderr


def test_what_fibre_channel_does_not_show_is_named(host: FakeHost) -> None:
    assert up(host, FC)[0].stderr == "missing this host has no Fibre Channel port\n"
    host.fibre_channel(WWPN, 3)
    assert up(host, "kernel:fc://50060e8000000000/3")[0].stderr.startswith("not_found no port of this host sees")
    host.add("tee", "cat >/dev/null")
    assert up(host, FC)[0].stderr == f"not_found {WWPN} shows no LUN 7 to this host: is it mapped?\n"
    assert host.journal == []


def test_a_namespace_over_fibre_channel_is_connected_over_every_port_that_sees_the_target(host: FakeHost) -> None:
    host.fibre_channel(WWPN, 7)
    for place, name in {"fc_remote_ports/rport-5:0-0": "0x5006", "fc_host/host5": "0x2000"}.items():
        host.write(f"class/{place}/node_name", name)
    host.write("class/fc_host/host5/port_name", "0x1000")
    done, facts, wrong = up(host, FC_NVME, io_queues=2, path_policy="round-robin")
    assert (done.returncode, wrong) == (0, []), done.stderr
    attached = attached_of("h1", done.stdout)
    assert (attached.device, attached.identity) == ("/dev/nvme7n1", "uuid.1234")
    assert (facts["queues"], facts["path_policy"], facts["link_speed_host5"]) == ("2", "round-robin", "32 Gbit")
    there, here = f"-a nn-0x5006:pn-0x{WWPN}", "-w nn-0x2000:pn-0x1000"
    assert f"nvme connect -t fc {there} {here} -n nqn.2014-08.org.example:vol -i 2" in host.log
    assert host.run(SCRIPT, "down").returncode == 0
    assert "nvme disconnect -n nqn.2014-08.org.example:vol" in host.log
    assert host.journal == []


def test_a_namespace_over_fibre_channel_that_is_not_to_be_reached_is_named(host: FakeHost) -> None:
    assert up(host, FC_NVME)[0].stderr == "missing this host has no Fibre Channel port\n"
    host.fibre_channel("50060e8000000000", 7)
    assert up(host, FC_NVME)[0].stderr.startswith(f"not_found no port of this host sees {WWPN}: zoning")
    host.write("class/nvme/nvme0/subsysnqn", "nqn.2014-08.org.example:vol")
    assert up(host, FC_NVME)[0].stderr.startswith("in_use nqn.2014-08.org.example:vol is connected on this host")
    assert host.journal == []


def test_connections_are_factors_too(host: FakeHost) -> None:
    assert up(host, NFS, nconnect=2)[2] == []
    assert up(host, NFS, nconnect=4)[2] == ["nconnect is 2, 4 was asked for"]
    assert any("nconnect=4" in line for line in host.log)
    assert up(host, NVME, io_queues=2)[2] == []
    assert any(line.endswith(" -i 2") for line in host.log)


@pytest.mark.parametrize(
    ("uri", "topology", "said"),
    [
        (FC, {"mtu": 9000}, "a Fibre Channel frame carries 2112 bytes"),
        (NFS, {"path_policy": "round-robin"}, "an NFS mount goes to one address"),
        (ISCSI, {"path_policy": "numa"}, "iscsi has no policy numa; it has fixed, round-robin, queue-depth"),
        (NVME, {"path_policy": "numa"}, "one path leaves nothing to choose"),
        (FC_NVME, {"mtu": 9000}, "a Fibre Channel frame carries 2112 bytes"),
        (NVME, {"nconnect": 2}, "nvme-tcp has none; it belongs to nfs"),
        (NVME, {"queue_depth": 64}, "nvme-tcp has none; it belongs to iscsi"),
        (f"{NVME}&queues=2", {"io_queues": 2}, "the endpoint says it already, as queues"),
        ("nvme-tcp://10.0.0.5/nqn.2014-08.org.example:vol?ns=1", {"mtu": 9000}, "only a path of the host's kernel"),
        (NFS, {"link_delay": "1ms"}, "the hosts lab takes the network as it is"),
    ],
)
def test_what_a_path_cannot_have_is_refused(uri: str, topology: dict[str, Any], said: str) -> None:
    assert any(said in each for each in broken(uri, **topology)), broken(uri, **topology)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        (FC_NVME.replace(WWPN, "array"), "a WWPN is 16 hexadecimal digits"),
        (FC_NVME.replace("nqn.", ""), "the subsystem's NQN is missing"),
        (FC_NVME.replace("ns=1", "ns=0"), "the namespace is missing"),
    ],
)
def test_an_endpoint_of_fibre_channel_that_names_nothing_is_refused(uri: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_endpoint(uri)


def test_levels_and_labels_may_set_it() -> None:
    of_factor = Study.model_validate(
        {
            "name": "x",
            "question": "?",
            "lab": {"hosts": {"initiators": ["h1"]}},
            "factors": {"protocol": {"a": NFS, "b": {"protocol": TWO, "path_policy": "numa"}}, "mtu": [1500, 9000]},
            "baseline": {"protocol": "a"},
        }
    )
    assert list(broken_rules(of_factor)) == []
    assert words(TWO, of_factor.settings({"protocol": "b", "mtu": 9000}))[:3] == (
        "mtu=9000",
        "policy=numa",
        "portals=10.0.2.5",
    )
    assert words(NFS, of_factor.settings({"protocol": "a", "mtu": 1500}))[0] == "mtu=1500"
