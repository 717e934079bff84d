"""Secrets that go to a host: to its kernel or to the engine there, by standard input, never in an argument."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iotax.places import HostFault
from iotax.study import Settings
from iotax.study.connection import DhSecret, Secret
from iotax.study.endpoint import NVME, kernel_path

_CHAP_CHARACTERS_MIN = 12
"""RFC 7143 §12.1.4: 96 bits."""
_DHCHAP = re.compile(r"DHHC-1:[0-9]{2}:[A-Za-z0-9+/=]+:")
"""NVMe TCP transport 1.0 §3.6.1.5, as nvme-cli writes it too."""


class NoSecret(Exception):  # noqa: N818 - an outcome, not a bug
    """A secret that is missing or invalid; the message never holds it."""


def carried(uri: str, settings: Settings) -> str:
    """Lines `name=value` for the script on the host; empty if the path takes none. Raises NoSecret."""
    kind, connection = kernel_path(uri).kind, settings.connection
    found: dict[str, str] = {}
    if kind == "iscsi" and (chap := connection.chap) is not None:
        found = {"chap_user": chap.user, "chap_secret": _chap(chap, "chap")}
        if chap.mutual is not None:
            found |= {"mutual_user": chap.mutual.user, "mutual_secret": _chap(chap.mutual, "chap.mutual")}
            _differ(found["chap_secret"], found["mutual_secret"], "chap")
    elif kind in NVME and (dhchap := connection.dhchap) is not None:
        if dhchap.hash or dhchap.dh_group:
            raise NoSecret("dhchap: the kernel agrees on hash and group itself; leave `hash` and `dh_group` out")
        found = {"dhchap_secret": _dhchap(dhchap, "dhchap")}
        if dhchap.controller is not None:
            found["dhchap_ctrl_secret"] = _dhchap(dhchap.controller, "dhchap.controller")
            _differ(found["dhchap_secret"], found["dhchap_ctrl_secret"], "dhchap")
    for name, value in found.items():
        if not value.isprintable():
            raise NoSecret(f"{name.replace('_', ' ')}: it holds what is not a character of a line")
    return "".join(f"{name}={value}\n" for name, value in found.items())


def handed_over(host: str, document: Mapping[str, Any], number: int = 0) -> tuple[dict[str, Any], dict[str, str]]:
    """A task of the engine's for a host, whose options name variables where they named our own files and variables, and
    these variables with the secrets. `number` tells apart those of several tasks. Raises HostFault."""
    try:
        options, secrets = _by_variables(document["options"], f"IOTAX_{number}_" if number else "IOTAX_")
    except NoSecret as error:
        raise HostFault(host, f"{document['endpoint']}: {error}", "usage") from error
    return {**document, "options": options}, secrets


def _by_variables(options: Mapping[str, Any], prefix: str, place: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """Nested options are always credentials (`chap.mutual`). Raises NoSecret."""
    named = {name: value for name, value in options.items() if name not in ("secret_file", "secret_env")}
    found: dict[str, str] = {}
    if place:
        secret = _read(options.get("secret_file"), options.get("secret_env"), place)
        if not secret.isprintable():
            raise NoSecret(f"{place}: it holds what is not a character of a line")
        variable = f"{prefix}{place.upper().replace('.', '_')}"
        found[variable] = secret
        named["secret_env"] = variable
    for name, value in options.items():
        if isinstance(value, Mapping):
            named[name], more = _by_variables(value, prefix, f"{place}.{name}".strip("."))
            found |= more
    return named, found


def _chap(asked: Secret, place: str) -> str:
    secret = _read(asked.secret_file, asked.secret_env, place)
    if len(secret) < _CHAP_CHARACTERS_MIN:
        raise NoSecret(f"{place}: a CHAP secret has at least {_CHAP_CHARACTERS_MIN} characters")
    return secret


def _dhchap(asked: DhSecret, place: str) -> str:
    secret = _read(asked.secret_file, asked.secret_env, place)
    if _DHCHAP.fullmatch(secret) is None:
        raise NoSecret(f"{place}: it is not of the form `DHHC-1:…:` (nvme gen-dhchap-key writes one)")
    return secret


def _differ(one: str, other: str, place: str) -> None:
    """A party that can prove the one secret must not be able to prove the other (RFC 7143 §9.2.1)."""
    if one == other:
        raise NoSecret(f"{place}: both directions have the same secret")


def _read(file: str | None, variable: str | None, place: str) -> str:
    if (file is None) == (variable is None):
        raise NoSecret(f"{place}: it needs either `secret_file` or `secret_env`")
    if variable is not None:
        if not (secret := os.environ.get(variable, "")):
            raise NoSecret(f"{place}: the environment of iotax has no {variable}")
        return secret
    try:
        secret = Path(str(file)).read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise NoSecret(f"{place}: {file} is not text") from None
    except OSError as error:
        raise NoSecret(f"{place}: {file}: {error.strerror}") from error
    if not secret:
        raise NoSecret(f"{place}: {file} is empty")
    return secret
