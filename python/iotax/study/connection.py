"""How an initiator connects, and as which user."""

from __future__ import annotations

from typing import Literal, TypeAlias

from iotax.study.fields import Section, UserId

Polling: TypeAlias = Literal["never", "auto", "always"]


class Secret(Section):
    """A user and where its secret is; a study never holds the secret itself."""

    user: str
    """The CHAP name."""
    secret_file: str | None = None
    """A file that holds the secret; a relative path starts at the study file."""
    secret_env: str | None = None
    """An environment variable that holds the secret."""


class Chap(Secret):
    """CHAP credentials of the initiator."""

    mutual: Secret | None = None
    """Credentials that the target must prove; none when not given."""


class DhSecret(Section):
    """Where a secret of the form `DHHC-1:…:` is; a study never holds the secret itself."""

    secret_file: str | None = None
    """A file that holds the secret; a relative path starts at the study file."""
    secret_env: str | None = None
    """An environment variable that holds the secret."""


class DhChap(DhSecret):
    """DH-HMAC-CHAP: how the host authenticates to an NVMe controller."""

    controller: DhSecret | None = None
    """Credentials that the controller must prove; none when not given."""
    hash: Literal["sha256", "sha384", "sha512"] | None = None
    """The only hash allowed; any when not given."""
    dh_group: Literal["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"] | None = None
    """The only Diffie-Hellman group allowed; any when not given."""


class Connection(Section):
    """How the initiator connects."""

    protocol: str | None = None
    """The protocol or endpoint of every trial, when `protocol` is not a factor."""
    initiator: str | None = None
    """The initiator's own name (IQN or NQN); default: a name of iotax."""
    header_digest: bool = False
    """CRC32C over headers (iSCSI, NVMe/TCP)."""
    data_digest: bool = False
    """CRC32C over data (iSCSI, NVMe/TCP)."""
    polling: Polling = "never"
    """How iotax's own initiators and targets wait: never (asleep), auto (polling for up to 100 µs), always \
(polling). Polling lowers latency and takes CPU."""
    chap: Chap | None = None
    """Credentials for iSCSI targets that require them."""
    dhchap: DhChap | None = None
    """Credentials for NVMe/TCP controllers that require them."""
    uid: UserId | None = None
    """User ID sent to NFS servers (AUTH_SYS); 0 when not given."""
    gid: UserId | None = None
    """Group ID sent to NFS servers (AUTH_SYS); 0 when not given."""


CREDENTIALS = ("initiator", "chap", "dhchap", "uid", "gid")
"""Fields of a connection that say who connects: a label of `protocol` may have its own."""
