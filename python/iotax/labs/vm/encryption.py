"""Encrypted links between guests: set up with keys that nobody keeps, and watched, so that no data go in plain text."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from iotax.labs.vm.guests import Guest, Guests, StepFailed
from iotax.labs.vm.topology import of_clients
from iotax.study import Settings
from iotax.study.fields import KERBEROS
from iotax.study.topology import OVER_TCP

_SECRET_BYTES = 32
_MADE_BY_STORAGE = (*KERBEROS, "tls")
"""Where the storage guest makes what each initiator is given."""


@dataclass(frozen=True)
class _End:
    guest: Guest
    environment: str
    """Settings in the form of its scripts."""
    host: int
    """1: the storage guest; 2: an initiator."""


class Links:
    """Encryption of guests that are up; in plain text until `encrypt`."""

    def __init__(self, guests: Guests, storage: Guest) -> None:
        """`storage` may be the initiator's guest, too."""
        self._guests, self._storage = guests, storage
        self._kind = ""
        self._ends: list[_End] = []
        """The storage first; empty while nothing is encrypted."""

    def encrypt(self, settings: Settings, environment: str) -> None:
        """Encrypts as these settings require, with new keys; links that are encrypted stay as they are. Raises VmFault
        and StepFailed."""
        if self._ends or settings.topology.encryption == "none":
            return
        self._kind, clients = settings.topology.encryption, settings.load.clients or 1
        initiators = zip(self._guests.initiators, of_clients(environment, clients), strict=False)
        self._ends = [
            _End(self._storage, environment, 1),
            *(_End(guest, own, 2) for guest, own in initiators),
        ]
        if self._kind in _MADE_BY_STORAGE:
            self._made_by_storage()
            return
        if self._kind == "ipsec":
            said = [f"SECRET={secrets.token_hex(_SECRET_BYTES)}; "] * len(self._ends)
        else:
            said = _peers([_public_key(end) for end in self._ends], settings.topology.paths)
        for end, word in zip(self._ends, said, strict=True):
            end.guest.run(f"{end.environment}{word}encryption_up {end.host}")

    def _made_by_storage(self) -> None:
        """The storage makes all keys, and each initiator is given its own."""
        storage, *initiators = self._ends
        secret = f"SECRET={secrets.token_hex(_SECRET_BYTES)}; "
        made = storage.guest.run(f"{storage.environment}{secret}encryption_up {storage.host}")
        given = [line.removeprefix("GIVE ") for line in made if line.startswith("GIVE ")]
        for end, own in zip(initiators, given, strict=True):
            end.guest.run(f"{end.environment}{own}; encryption_up {end.host}")

    def end(self) -> None:
        """The links are in plain text again. Raises VmFault and StepFailed."""
        ends, self._ends = self._ends, []
        for each in ends:
            each.guest.run(f"{each.environment}encryption_down {each.host}")

    @contextmanager
    def watched(self, paths: Sequence[Sequence[str]]) -> Generator[None]:
        """Raises StepFailed at the end if an initiator moved more data than were encrypted. `paths` are the volumes of
        each initiator, whose kernel counts what it reads and writes there."""
        watched = list(zip(self._ends[1:], map(_counted_once, paths), strict=False))
        before = [_bytes(end, own) for end, own in watched]
        yield
        for (end, own), (encrypted, moved) in zip(watched, before, strict=True):
            encrypted_now, moved_now = _bytes(end, own)
            if (through := encrypted_now - encrypted) < (data := moved_now - moved):
                facts = end.guest.run(f"{end.environment}encryption_facts")
                read = "; ".join(line.removeprefix("FACT ") for line in facts)
                raise StepFailed(
                    0,
                    f"data went in plain text: the {end.guest.name} guest moved {data} bytes, and {self._kind} "
                    f"encrypted and decrypted {through} ({read})",
                )


def apart(settings: Settings, guests: int, asked: Iterable[Settings]) -> str:
    """With one guest, the target has its own network namespace if any of the study's trials encrypts the link to it:
    plain text takes the same path. In the form of the guest's scripts, which pass all settings on."""
    encrypts = guests == 1 and any(each.topology.encryption != "none" for each in asked)
    return "set -a; APART=1; " if encrypts and settings.endpoint.protocol in OVER_TCP else ""


def _bytes(end: _End, paths: Sequence[str]) -> tuple[int, int]:
    """Encrypted and decrypted so far; read and written so far."""
    asked = "; ".join(f"bytes_of {path}" for path in paths)
    said = end.guest.run(f"{end.environment}encrypted_bytes; {asked}")
    encrypted, *moved = (int(line.split(" ")[1]) for line in said)
    return encrypted, sum(moved)


def _counted_once(paths: Sequence[str]) -> list[str]:
    """Counters over all NFS mounts, or all NVMe paths, are read once."""
    together = ("/mnt/", "/dev/nvme")
    return list(dict.fromkeys(next((kind for kind in together if path.startswith(kind)), path) for path in paths))


def _public_key(end: _End) -> str:
    return end.guest.run(f"{end.environment}wireguard_public {end.host}")[-1].removeprefix("PUBLIC=")


def _peers(public: Sequence[str], paths: int) -> list[str]:
    """For each end, the storage first: its peer on each link."""
    storage, *initiators = public
    links = range(max(paths, len(initiators)))
    others = initiators * paths if len(initiators) == 1 else initiators
    told = [dict(zip(links, others, strict=True)), *(dict.fromkeys(links, storage) for _ in initiators)]
    return [f"PEERS='{' '.join(f'{link}={key}' for link, key in each.items())}'; " for each in told]
