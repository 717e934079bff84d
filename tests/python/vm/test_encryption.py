"""Encrypted links: what cannot be encrypted, keys that are never stored, and data that must not pass in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from iotax.design import plan
from iotax.labs.vm import preflight, recipe
from iotax.labs.vm.cache import cache_root
from iotax.labs.vm.encryption import Links, apart
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import Guest, Guests, StepFailed
from iotax.labs.vm.image import Contents, Image, build
from iotax.labs.vm.lab import VmLab
from iotax.labs.vm.packages import Store
from iotax.labs.vm.topology import environment, facts_of, mismatches
from iotax.notebook import Notebook
from iotax.study import Settings, Study
from iotax.study.facts import planned_facts
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.trial import Attempt, TrialResult

from .needed import require
from .studies import start

STUDY = """\
name: links
question: What does it cost?
lab: LAB
factors:
  protocol: PROTOCOL
baseline: {protocol: a}
"""


def parse(protocol: str, lab: str = "vm", more: str = "") -> Study:
    return read_study("s.yaml", STUDY.replace("PROTOCOL", protocol).replace("LAB", lab) + more, Path("/studies"))


def settings(encryption: str, protocol: str = "nvme-tcp", more: str = "") -> Settings:
    return parse(f"{{a: {{protocol: {protocol}, encryption: {encryption}{more}}}}}").settings({"protocol": "a"})


@pytest.mark.parametrize("protocol", ["nfs3", "nfs4.1", "iscsi", "nvme-tcp"])
def test_every_protocol_over_tcp_may_be_encrypted(protocol: str) -> None:
    asked = settings("ipsec", protocol)
    assert "ENCRYPTION=ipsec; " in environment(asked, guests=2)
    assert "ENCRYPTION=; " in environment(settings("none", protocol), guests=2)
    # The image has the encryption tools only if a study encrypts.
    assert preflight.contents([asked], "stock").encryption == ("ipsec",)
    assert preflight.contents([settings("none", protocol)], "stock").encryption == ()


@pytest.mark.parametrize(
    ("setup", "lab", "expected"),
    [
        ("{protocol: local, encryption: ipsec}", "vm", "local I/O crosses no network"),
        ("{protocol: fcp, encryption: ipsec}", "vm", "FCoE frames are not IP; encryption is for nfs3, nfs4.1, iscsi"),
        ("{protocol: fcp-loop, encryption: ipsec}", "vm", "fcp-loop has no transport"),
        ("{protocol: fc-nvme, encryption: wireguard}", "vm", "fc-nvme runs over a loop within one kernel"),
        ("{protocol: nvme-rdma, encryption: ipsec}", "vm", "RDMA in software makes packets that pass by"),
        ("{protocol: iser, encryption: wireguard}", "vm", "RDMA in software makes packets that pass by"),
        ("{protocol: iscsi, encryption: ipsec, attach: nvme}", "vm", "over none of the guests' links"),
        ("{protocol: iscsi, encryption: ipsec}", "loopback", "there is no link to encrypt; say `lab: vm`"),
        ("{protocol: iscsi, encryption: ipsec}", "sim", "the tables of costs know no encryption"),
        ("{protocol: iscsi, encryption: krb5p}", "vm", "Kerberos protects calls of NFS; krb5p is for nfs3, nfs4.1"),
        ("{protocol: nvme-tcp, encryption: krb5i}", "vm", "Kerberos protects calls of NFS; krb5i is for nfs3, nfs4.1"),
        ("{protocol: nfs3, encryption: krb5p, target: ganesha}", "vm", "ganesha has no keys of the lab's realm"),
        ("{protocol: iscsi, encryption: tls}", "vm", "iscsi has no TLS; tls is for nfs3, nfs4.1, nvme-tcp"),
        ("{protocol: nvme-tcp, encryption: tls, target: iotax}", "vm", "iotax is set up without TLS"),
        ("{protocol: nvme-tcp, encryption: tls, target: /spdk/nvmf_tgt}", "vm", "nvmf_tgt is set up without TLS"),
        ("{protocol: iscsi, encryption: rot13}", "vm", "one of none, ipsec, wireguard, krb5i, krb5p, tls is expected"),
    ],
)
def test_what_cannot_be_encrypted_is_refused_by_name(setup: str, lab: str, expected: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse(f"{{a: {setup}}}", lab)
    assert expected in str(caught.value)
    assert "encryption" in str(caught.value)


def test_hosts_refuse_what_they_cannot_confirm() -> None:
    lab = "{hosts: {initiators: [h1], targets: [{name: t, address: 10.0.0.5}]}}"
    with pytest.raises(StudyError, match="the hosts lab takes the network as it is, encrypted or not"):
        parse("{a: iscsi}\n  encryption: [none, ipsec]", lab)


def test_treatments_of_one_session_are_encrypted_alike() -> None:
    more = "design: {sessions: 2, rounds: 4, slice: 500ms}\n"
    with pytest.raises(StudyError, match="a link is encrypted in one way: encryption has 2 levels"):
        parse("[iscsi, nvme-tcp]\n  encryption: [none, ipsec]", more=more)


def test_a_study_that_says_nothing_of_it_is_written_as_before() -> None:
    assert "encryption" not in parse("{a: iscsi}").model_dump_json()
    again = Study.model_validate_json(parse("{a: {protocol: iscsi, encryption: ipsec}}").model_dump_json())
    assert again.settings({"protocol": "a"}).topology.encryption == "ipsec"


def test_a_link_in_plain_text_is_refused_with_what_was_read() -> None:
    read = "10.0.0.1 by eth0, none, 0 bytes out, 0 in"
    plain = facts_of(["FACT mtu=1500", "FACT encryption=none", f"FACT encryption_read={read}"])
    assert mismatches(settings("none"), plain) == []
    assert mismatches(settings("ipsec"), plain) == [
        f"encryption is none ({read}) in the initiator, ipsec was asked for"
    ]
    # A link that is encrypted although plain text was requested.
    other = facts_of(["FACT mtu=1500", "FACT encryption=wireguard"])
    assert mismatches(settings("none"), other) == ["encryption is wireguard in the initiator, none was asked for"]


def test_in_one_guest_the_target_has_a_network_of_its_own_where_a_study_encrypts() -> None:
    plain, ipsec, fcp = (settings(*each) for each in (("none",), ("ipsec",), ("none", "fcp")))
    assert apart(plain, 1, [plain, ipsec, fcp]) == apart(ipsec, 1, [ipsec]) == "set -a; APART=1; "
    # Without encryption both ends use the loopback device. Fibre Channel has no such link.
    assert apart(plain, 1, [plain, fcp]) == apart(fcp, 1, [fcp, ipsec]) == apart(ipsec, 2, [ipsec]) == ""


def test_a_distribution_without_the_tools_is_told() -> None:
    study = parse("{a: {protocol: iscsi, encryption: wireguard}, b: iscsi}")
    lab = VmLab(study, plan(study), Path("/engine"))
    reason = "the package lists do not know wireguard-tools"
    lab._images["stock"] = Image(Path("/k"), Path("/i"), "6.1", packages={}, unavailable={"wireguard": reason})
    assert lab._obstacle(study.settings({"protocol": "a"})) == f"wireguard is not available: {reason}"
    assert lab._obstacle(study.settings({"protocol": "b"})) is None


def test_what_encrypts_a_link_is_of_the_facts_of_a_trial() -> None:
    study = parse("{a: {protocol: iscsi, encryption: wireguard}, b: iscsi, c: local}")
    links = [planned_facts(study, study.settings({"protocol": label})).link for label in "abc"]
    assert [link.encryption for link in links] == ["wireguard", None, None]
    exact = parse("{a: {protocol: iscsi, encryption: wireguard}}", "{vm: {guests: 1}}")
    assert planned_facts(exact, exact.settings({"protocol": "a"})).link.encryption == "wireguard"


@dataclass
class FakeGuest:
    """Answers the scripts of a link; its counters grow by one step at each reading."""

    name: str
    encrypts: int = 0
    moves: int = 0
    ran: list[str] = field(default_factory=list)
    readings: int = 0

    def run(self, script: str) -> list[str]:
        self.ran.append(script)
        if "wireguard_public" in script:
            return [f"PUBLIC={self.name}="]
        if "krb5p" in script and "SECRET" in script:
            return ["GIVE KEYTAB=first=", "a word of a tool", "GIVE KEYTAB=second="]
        if "tls" in script and "SECRET" in script:
            return ["GIVE CERTIFICATE=public=; PSK=first", "GIVE CERTIFICATE=public=; PSK=second"]
        if "encrypted_bytes" in script:
            self.readings += 1
            moved = [f"BYTES {self.moves * self.readings}"] * script.count("bytes_of")
            return [f"ENCRYPTED {self.encrypts * self.readings}", *moved]
        return ["FACT encryption_read=10.0.0.1 by eth0"] if "encryption_facts" in script else []


class FakeGuests:
    def __init__(self, *initiators: FakeGuest) -> None:
        self.storage, self.initiators = FakeGuest("storage"), list(initiators)

    def __getitem__(self, role: str) -> FakeGuest:
        return self.storage if role == "storage" else self.initiators[0]


def links(guests: FakeGuests) -> Links:
    return Links(cast(Guests, guests), cast(Guest, guests.storage))


def test_keys_are_new_for_each_connection_and_both_ends_have_the_same() -> None:
    guests = FakeGuests(FakeGuest("initiator"))
    of = links(guests)
    for _ in range(2):
        of.encrypt(settings("ipsec"), "ENCRYPTION=ipsec; ")
        of.encrypt(settings("ipsec"), "ENCRYPTION=ipsec; ")  # a second time in the same session
        of.end()
    both = [[line.split("; ")[1] for line in guest.ran if "SECRET" in line] for guest in (guests.storage, guests[""])]
    assert both[0] == both[1]
    assert len(both[0]) == len({*both[0]}) == 2
    assert all(len(secret) == len("SECRET=") + 64 for secret in both[0])
    assert guests.storage.ran[-1] == "ENCRYPTION=ipsec; encryption_down 1"


def test_each_end_of_a_tunnel_is_told_whom_it_meets_on_which_link() -> None:
    guests = FakeGuests(FakeGuest("one"), FakeGuest("two"))
    study = parse("{a: {protocol: iscsi, encryption: wireguard}}\n  clients: [1, 2]", more="volume: {size: 16MiB}\n")
    links(guests).encrypt(study.settings({"protocol": "a", "clients": 2}), "E; ")
    told = [guest.ran[-1] for guest in (guests.storage, *guests.initiators)]
    assert told == [
        "E; PEERS='0=one= 1=two='; encryption_up 1",
        "E; CLIENT=0; PEERS='0=storage= 1=storage='; encryption_up 2",
        "E; CLIENT=1; PEERS='0=storage= 1=storage='; encryption_up 2",
    ]
    several = FakeGuests(FakeGuest("one"))
    links(several).encrypt(settings("wireguard", more=", paths: 2, path_policy: numa"), "E; ")
    assert several.storage.ran[-1] == "E; PEERS='0=one= 1=one='; encryption_up 1"


def test_the_storage_makes_the_keys_of_kerberos_and_each_initiator_is_given_its_own() -> None:
    guests = FakeGuests(FakeGuest("one"), FakeGuest("two"))
    study = parse("{a: {protocol: nfs3, encryption: krb5p}}\n  clients: [1, 2]", more="volume: {size: 16MiB}\n")
    links(guests).encrypt(study.settings({"protocol": "a", "clients": 2}), "ENCRYPTION=krb5p; ")
    [made] = guests.storage.ran
    assert re.fullmatch(r"ENCRYPTION=krb5p; SECRET=[0-9a-f]{64}; encryption_up 1", made)
    assert [guest.ran for guest in guests.initiators] == [
        [f"ENCRYPTION=krb5p; CLIENT={number}; KEYTAB={key}=; encryption_up 2"]
        for number, key in enumerate(("first", "second"))
    ]


def test_each_initiator_is_given_the_certificate_of_the_storage_and_a_tls_key_of_its_own() -> None:
    guests = FakeGuests(FakeGuest("one"), FakeGuest("two"))
    study = parse("{a: {protocol: nvme-tcp, encryption: tls}}\n  clients: [1, 2]", more="volume: {size: 16MiB}\n")
    links(guests).encrypt(study.settings({"protocol": "a", "clients": 2}), "ENCRYPTION=tls; ")
    assert [guest.ran for guest in guests.initiators] == [
        [f"ENCRYPTION=tls; CLIENT={number}; CERTIFICATE=public=; PSK={key}; encryption_up 2"]
        for number, key in enumerate(("first", "second"))
    ]


def test_events_are_refused_with_tls_whose_count_ends_with_a_connection() -> None:
    event = "events: [{do: {freeze: target}, at: 2s, for: 1s}]\nload: {runtime: 8s}\n"
    parse("{a: {protocol: nvme-tcp, encryption: ipsec}}", more=event)
    with pytest.raises(StudyError, match="a lost connection takes the count of what TLS encrypted with it"):
        parse("{a: {protocol: nvme-tcp, encryption: tls}}", more=event)


def told(asked: Settings) -> dict[str, str]:
    """What preflight says, by subject."""
    return {item.subject: item.message for item in preflight.findings([asked], 1 << 20) if item.kind == "error"}


def test_without_tlshd_a_study_is_refused_with_what_to_do(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path))
    monkeypatch.setattr(Store, "knows", lambda self, name: False)
    monkeypatch.setattr(recipe, "own_daemon", lambda: None)
    monkeypatch.setattr(preflight, "_named", lambda store, release: "linux-image-6.12.1-amd64")
    assert told(settings("tls"))["tlshd"] == recipe.TLSHD_MISSING
    with pytest.raises(VmFault, match="TLS needs the program tlshd"):
        preflight.require_tls([settings("ipsec"), settings("tls")])
    assert (
        "Debian 13 has ktls-utils; on older systems build https://github.com/oracle/ktls-utils" in recipe.TLSHD_MISSING
    )
    assert "tlshd" not in told(settings("ipsec"))
    # The distribution's package is enough.
    monkeypatch.setattr(Store, "knows", lambda self, name: name == "ktls-utils")
    assert "tlshd" not in told(settings("tls"))
    preflight.require_tls([settings("tls")])


def test_a_tlshd_that_the_user_installed_is_found(monkeypatch: Any, tmp_path: Path) -> None:
    daemon = tmp_path / "tlshd"
    daemon.write_bytes(b"")
    daemon.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert recipe.own_daemon() == daemon


@pytest.mark.parametrize(
    ("package", "refused"), [("linux-image-6.1.0-56-amd64", True), ("linux-image-6.12.1-amd64", False)]
)
def test_a_kernel_without_tls_is_refused(monkeypatch: Any, tmp_path: Path, package: str, refused: bool) -> None:
    monkeypatch.setenv("IOTAX_CACHE", str(tmp_path))
    monkeypatch.setattr(preflight, "_named", lambda store, release: package)
    said = told(settings("tls")).get("kernel", "")
    assert said == (f'TLS needs Linux 6.7, and {package} is older; say `kernel: "6.12"` for it' if refused else "")
    assert "kernel" not in told(settings("ipsec"))


def test_a_trial_whose_data_passed_by_in_plain_text_fails() -> None:
    guests = FakeGuests(FakeGuest("initiator", encrypts=100, moves=100))
    of = links(guests)
    with of.watched([["/dev/sda"]]):  # nothing is encrypted, so nothing is watched
        assert guests.initiators[0].ran == []
    of.encrypt(settings("ipsec"), "E; ")
    with of.watched([["/dev/sda"]]):
        pass
    guests.initiators[0].moves = 101
    why = r"in plain text: .*moved 101 bytes, and ipsec encrypted and decrypted 100 .*by eth0"
    with pytest.raises(StepFailed, match=why), of.watched([["/dev/sda"]]):
        pass


def test_what_a_kernel_counts_over_all_mounts_is_counted_once() -> None:
    guests = FakeGuests(FakeGuest("initiator", encrypts=100, moves=50))
    of = links(guests)
    of.encrypt(settings("ipsec"), "E; ")
    with of.watched([["/mnt/nfs3/data", "/mnt/nfs4.1/data", "/dev/sda"]]):
        pass
    assert guests.initiators[0].ran[-1] == "E; encrypted_bytes; bytes_of /mnt/; bytes_of /dev/sda"


CIPHER = "rfc4106(gcm(aes))"
PATTERN = b"these words of a volume must not be read on a link"
WRITE = (
    f"yes '{PATTERN.decode()}' | head -c 65536 >/run/pattern; dd if=/run/pattern of=$DEVICE bs=4k conv=fsync,notrunc"
)


def booted(contents: Contents) -> Guests:
    image = build(require(), lambda _: None, contents=contents)
    assert not {*contents.encryption} & {*image.unavailable}
    both = Guests(image, accelerator="tcg", clock="host", volume_bytes=16 << 20)
    both["storage"].run("volume_up 1048576")
    return both


@pytest.fixture(scope="module")
def encrypting() -> Iterator[Guests]:
    both = booted(Contents(encryption=("ipsec", "wireguard")))
    yield both
    both.close()


@pytest.fixture(scope="module")
def kerberised() -> Iterator[Guests]:
    """With a kernel whose NFS server answers calls of krb5p."""
    both = booted(Contents(kernel="6.12", encryption=("krb5p",)))
    yield both
    both.close()


def require_tlshd() -> None:
    """Not every machine can have it, so its tests are skipped also with CI=true."""
    require()
    if not (recipe.own_daemon() or Store(cache_root() / "packages").knows(recipe.TLSHD_PACKAGE)):
        pytest.skip(recipe.TLSHD_MISSING)


@pytest.fixture(scope="module")
def over_tls() -> Iterator[Guests]:
    require_tlshd()
    both = booted(Contents(kernel="6.12", encryption=("tls",)))
    yield both
    both.close()


@dataclass
class Reached:
    """A protocol between real guests, encrypted or not."""

    guests: Guests
    asked: Settings
    links: Links
    device: str = ""

    @property
    def told(self) -> str:
        return environment(self.asked, guests=2)

    def facts(self) -> dict[str, str]:
        return facts_of(self.guests["initiator"].run(f"{self.told}facts_of {self.protocol}"))

    @property
    def protocol(self) -> str:
        return self.asked.endpoint.protocol

    def up(self) -> None:
        self.links.encrypt(self.asked, self.told)
        self.guests["storage"].run(f"{self.told}step {self.protocol} target_up")
        said = self.guests["initiator"].run(f"{self.told}step {self.protocol} initiator_up")
        self.device = said[-1].removeprefix("DEVICE=")

    def down(self) -> None:
        self.guests["initiator"].run(f"{self.told}step {self.protocol} initiator_down")
        self.guests["storage"].run(f"{self.told}step {self.protocol} target_down")
        self.links.end()

    def write(self, capture: Path) -> bytes:
        """Writes the pattern, and returns QEMU's capture of the link during the write."""
        monitor = self.guests["initiator"].monitor
        dump = {"qom-type": "filter-dump", "id": "dump", "netdev": "net0", "file": str(capture)}
        monitor.execute("object-add", dump, timeout_s=60)
        self.guests["initiator"].run(f"DEVICE={self.device}; {WRITE}; echo 3 >/proc/sys/vm/drop_caches")
        monitor.execute("object-del", {"id": "dump"}, timeout_s=60)
        return capture.read_bytes()


@pytest.fixture
def connect(encrypting: Guests) -> Iterator[Any]:
    up: list[Reached] = []

    def connected(encryption: str) -> Reached:
        path = Reached(encrypting, settings(encryption), Links(encrypting, encrypting["storage"]))
        up.append(path)
        path.up()
        return path

    yield connected
    for path in up:
        path.down()


def written(guests: Guests, asked: Settings, capture: Path) -> tuple[bytes, dict[str, str]]:
    """What the link carried while a pattern was written over such a path, and what the guest says of the path."""
    path = Reached(guests, asked, Links(guests, guests["storage"]))
    path.up()
    with path.links.watched([[path.device]]):
        captured = path.write(capture)
    facts = path.facts()
    path.down()
    assert len(captured) > 65536
    assert mismatches(asked, facts) == []
    return captured, facts


@pytest.mark.parametrize("protocol", ["nfs3", "nfs4.1"])
def test_nobody_reads_a_pattern_that_kerberos_encrypts_and_signs(
    kerberised: Guests, protocol: str, tmp_path: Path
) -> None:
    for encryption in ("none", "krb5i", "krb5p"):
        captured, facts = written(kerberised, settings(encryption, protocol), tmp_path / f"{encryption}.pcap")
        assert (PATTERN in captured) == (encryption != "krb5p")
        assert facts["encryption"] == encryption
        assert encryption != "krb5p" or "cts(cbc(" in facts["cipher"]


@pytest.mark.parametrize(
    ("protocol", "cipher"), [("nvme-tcp", "aes-gcm-128, "), ("nfs3", "aes-gcm-256, "), ("nfs4.1", "aes-gcm-256, ")]
)
def test_nobody_reads_a_pattern_over_tls(over_tls: Guests, protocol: str, cipher: str, tmp_path: Path) -> None:
    for encryption in ("none", "tls"):
        captured, facts = written(over_tls, settings(encryption, protocol), tmp_path / f"{encryption}.pcap")
        assert (PATTERN in captured) == (encryption == "none")
        assert facts["encryption"] == encryption
        assert encryption == "none" or facts["cipher"].startswith(cipher)


OTHER_KEY = "keyctl clear %:.nvme; PSK=$(echo other | sha256sum | cut -c 1-64); psk_up 0"


def test_an_nvme_target_over_tls_accepts_no_other_key_and_no_plain_text(over_tls: Guests) -> None:
    path = Reached(over_tls, settings("tls"), Links(over_tls, over_tls["storage"]))
    path.up()
    over_tls["initiator"].run(f"{path.told}step nvme-tcp initiator_down")
    for wrong in ("ENCRYPTION=", "keyctl clear %:.nvme", OTHER_KEY):
        with pytest.raises(StepFailed, match="connect transport=tcp"):
            over_tls["initiator"].run(f"{path.told}{wrong}; step nvme-tcp initiator_up")
    over_tls["storage"].run(f"{path.told}step nvme-tcp target_down")
    path.links.end()


OTHER_CERTIFICATE = "mkdir /run/other; (TLS=/run/other; certificate_up); mv /run/other/certificate $TLS/certificate"


def test_an_nfs_client_over_tls_accepts_no_other_address_and_no_other_certificate(over_tls: Guests) -> None:
    path = Reached(over_tls, settings("tls", "nfs4.1"), Links(over_tls, over_tls["storage"]))
    path.up()
    storage, initiator = over_tls["storage"], over_tls["initiator"]
    initiator.run(f"{path.told}step nfs4.1 initiator_down")
    storage.run("ip addr add 10.0.0.9/24 dev eth0")
    mount = "timeout 40 mount.nfs 10.0.0.9:/volume /mnt/nfs4.1 -o vers=4.1,proto=tcp"
    said = initiator.run(f"{mount},xprtsec=tls 2>&1 || echo refused; tail -n 1 $TLS/log")
    assert "refused" in said
    assert "Certificate owner unexpected" in said[-1]
    # The server is there: without TLS it can be mounted.
    assert initiator.run(f"{mount} && umount /mnt/nfs4.1 && echo mounted")[-1] == "mounted"
    storage.run("ip addr del 10.0.0.9/24 dev eth0")
    with pytest.raises(StepFailed, match=r"mount -o .*xprtsec=tls.*: .*Certificate signature failure"):
        initiator.run(f"{path.told}{OTHER_CERTIFICATE}; step nfs4.1 initiator_up")
    storage.run(f"{path.told}step nfs4.1 target_down")
    path.links.end()


@pytest.mark.parametrize("encryption", ["none", "ipsec", "wireguard"])
def test_nobody_reads_an_encrypted_pattern_on_the_link(connect: Any, encryption: str, tmp_path: Path) -> None:
    path = connect(encryption)
    with path.links.watched([[path.device]]):
        captured = path.write(tmp_path / "link.pcap")
    # All of the data crossed this link, encrypted or not.
    assert len(captured) > 65536
    assert (PATTERN in captured) == (encryption == "none")
    facts = path.facts()
    assert mismatches(path.asked, facts) == []
    assert facts["encryption"] == encryption
    if encryption == "none":  # as in every study that does not request encryption
        assert "encryption_read" not in facts
        return
    assert f"by {'wg0' if encryption == 'wireguard' else 'eth0'}, {encryption}, " in facts["encryption_read"]


def test_an_error_of_the_tools_tells_no_key(encrypting: Guests) -> None:
    for key in ("0xdeadbeefz", "0xdeadbeef"):
        words = f"src 10.0.0.1 dst 10.0.0.2 proto esp spi 300 mode transport aead '{CIPHER}' {key} 128"
        with pytest.raises(StepFailed, match="ip xfrm state add") as caught:
            encrypting["storage"].run(f"xfrm state add {words}")
        assert "deadbeef" not in str(caught.value)


def test_a_path_that_loses_its_encryption_is_noticed(connect: Any, encrypting: Guests, tmp_path: Path) -> None:
    path = connect("ipsec")
    why = r"data went in plain text: .*\(encryption=none; encryption_read=10.0.0.1 by eth0"

    def lose() -> None:
        with path.links.watched([[path.device]]):
            for role in ("storage", "initiator"):
                encrypting[role].run("$IP xfrm policy flush; $IP xfrm state flush")
            assert PATTERN in path.write(tmp_path / "link.pcap")

    with pytest.raises(StepFailed, match=why):
        lose()
    [wrong] = mismatches(path.asked, path.facts())
    assert wrong.startswith("encryption is none (10.0.0.1 by eth0, none, 0 bytes out, 0 in) in the initiator")


ONE_GUEST = """\
name: one-guest
question: Do both halves of one kernel meet on an encrypted link?
lab: {vm: {accelerator: tcg, clock: icount, guests: 1}}
volume: {size: 4MiB, refill: block}
factors:
  protocol:
    plain: nvme-tcp
    tunnel: {protocol: nvme-tcp, encryption: wireguard}
    our NFS: {protocol: nfs3, target: iotax, encryption: ipsec}
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 600ms}
design: {replicates: 1}
baseline: {protocol: plain}
"""


OTHERS = """\
    secured: {protocol: iscsi, encryption: ipsec}
    knfsd: {protocol: nfs4.1, encryption: wireguard}
"""


@pytest.mark.parametrize("more", ["", pytest.param(OTHERS, marks=pytest.mark.long)], ids=["three", "all"])
def test_one_kernel_carries_verified_data_over_its_encrypted_link(tmp_path: Path, engine: Path, more: str) -> None:
    attempts = attempts_of(ONE_GUEST.replace("load:", f"{more}load:"), tmp_path, engine)
    found = {name: each.connected.found for name, each in attempts.items() if each.connected}
    expected = {"plain": "none", "tunnel": "wireguard", "our NFS": "ipsec"}
    if more:
        expected |= {"secured": "ipsec", "knfsd": "wireguard"}
    assert {name: each["encryption"] for name, each in found.items()} == expected
    assert {name: each["target"] for name, each in found.items() if each["target"] != "kernel"} == {"our NFS": "iotax"}
    costs = {}
    for name, each in attempts.items():
        result = verified(each)
        assert result.cpu.initiator is not None
        costs[name] = result.cpu.initiator.net_ns / result.ios
    assert costs["tunnel"] > costs["plain"]


OVER_TLS = """\
    plain: nvme-tcp
    nvme: {protocol: nvme-tcp, encryption: tls}
    nfs: {protocol: nfs4.1, encryption: tls}
topology: {kernel: "6.12"}
"""


@pytest.mark.long
def test_one_kernel_carries_verified_data_over_tls(tmp_path: Path, engine: Path) -> None:
    require_tlshd()
    before, _, after = ONE_GUEST.partition("    plain: nvme-tcp\n")
    attempts = attempts_of(f"{before}{OVER_TLS}load:{after.partition('load:')[2]}", tmp_path, engine)
    found = {name: each.connected.found["encryption"] for name, each in attempts.items() if each.connected}
    assert found == {"plain": "none", "nvme": "tls", "nfs": "tls"}
    for each in attempts.values():
        verified(each)


def attempts_of(study: str, folder: Path, engine: Path) -> dict[str, Attempt]:
    """Of a study that runs to its end, by protocol."""
    with start(folder, engine, study) as running:
        said, _ = running.communicate(timeout=1100)
    assert running.returncode == 0, said
    with Notebook(folder / "kernels.iotax") as notebook:
        return {str(each.trial.treatment["protocol"]): each for each in notebook.attempts(1)}


def verified(attempt: Attempt) -> TrialResult:
    result = attempt.result
    assert result is not None
    assert result.verify is not None
    assert result.verify.wrong_blocks == 0
    assert result.verify.checked_blocks > 0
    return result
