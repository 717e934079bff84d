"""What a command writes for people and other programs: files, never over measurements, never half of one;
text for terminals; and what a page of its own may carry out."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
from pathlib import Path
from typing import IO

OUT = Path("out")
"""Where results are kept unless the user names another place."""
NOTEBOOK_SUFFIXES = (".iotax", ".iotax-wal", ".iotax-shm", ".iotax-lock", ".iotax-new")
"""Names of notebooks and of the files that SQLite and a writer keep beside them."""
STUDY_SUFFIXES = (".yaml", ".yml")
_DATABASE = b"SQLite format 3\0"
"""How every SQLite file begins, a notebook of any name among them (https://www.sqlite.org/fileformat.html §1.3)."""
GENERATOR = '<meta name="generator" content="iotax">'
"""Every page of ours says who made it, within its first lines."""
NOTE_OF_ORIGIN = "<!-- iotax -->"
"""The first line of our Markdown and of our drawings, which no reader shows."""
PICTURE_MARK = b"Software\0iotax"
"""A text chunk of our pictures (PNG §11.3.3.2)."""
PDF_MARK = b"%iotax\n"
"""The last line of our PDF: a comment, which readers pass over (ISO 32000-2 §7.2.4)."""
PARQUET_MARK = b'{"made_by": "iotax"}'
"""Among the key-value metadata in the footer of our Parquet: a frame's attributes."""
_HEAD_BYTES = 2048
_OURS = re.compile(
    rb'<!doctype html>\s.*%b|%b|\x89PNG.{33}tEXt%b|\{\n "|run,label,study,|run\n$'
    % tuple(re.escape(mark) for mark in (GENERATOR.encode(), NOTE_OF_ORIGIN.encode(), PICTURE_MARK)),
    re.DOTALL,
)
"""How our files begin: pages, Markdown and drawings, pictures; JSON by its layout, rows by their titles."""
_FOOTER_BYTES_MAX = 1 << 20


_COMMANDS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]")
"""Control characters, and those that change the direction of writing: to a terminal they are commands. A line end and
a tab are none."""


def visible(text: str) -> str:
    """Text from outside (a study, a notebook, another program's files) as a terminal may show it: what would command
    the terminal is written out, as `\\x1b`."""
    return _COMMANDS.sub(lambda found: ascii(found[0])[1:-1], text)


def csp_hash(text: str) -> str:
    """A script or a style within a page, as the page's Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class OutputRefused(Exception):  # noqa: N818 - an answer, not a bug
    """The file named for an output holds something that iotax does not replace; says what, and what to do."""


def judge(path: Path, *inputs: Path, known: bool = False) -> None:
    """Raises OutputRefused if writing to `path` would replace a notebook, a study, a device, one of `inputs`, or a
    file that iotax has not written. `known`: the caller has looked at the file and may replace it.

    Raises OSError if that cannot be found out. Commands ask before they work; `write` asks again.
    """
    target = path.resolve()
    if any(target == each.resolve() or _same(target, each) for each in inputs):
        raise OutputRefused(f"{path} is what this command reads; name another file for the output")
    if target.name.endswith(NOTEBOOK_SUFFIXES):
        raise OutputRefused(f"{path} names a notebook; name another file for the output")
    if path.is_block_device():
        raise OutputRefused(f"{path} is a block device; name a file for the output")
    if not target.is_file():
        return
    if target.suffix in STUDY_SUFFIXES:
        raise OutputRefused(f"{path} already exists and may be a study; name another file for the output")
    if _begins_with(target, _DATABASE):
        raise OutputRefused(f"{path} is a notebook or another SQLite file; name another file for the output")
    if not known and not _is_ours(target):
        raise OutputRefused(
            f"{path} already exists, and iotax has not written it; name another file for the output, or move it away"
        )


def write(path: Path, content: str | bytes | IO[bytes], *inputs: Path, known: bool = False) -> None:
    """Replaces `path` whole or not at all; text is written as UTF-8, a file is copied from its beginning. A terminal, a
    pipe or /dev/null is written to.

    A symbolic link stays one: what it points to is replaced. Raises OutputRefused, and OSError with the name of the
    file that the user gave, whatever step failed.
    """
    if isinstance(content, str):
        content = content.encode()
    data = io.BytesIO(content) if isinstance(content, bytes) else content
    data.seek(0)
    try:
        judge(path, *inputs, known=known)
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:
                shutil.copyfileobj(data, stream)
        else:
            _replace(path.resolve(), data)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _replace(target: Path, data: IO[bytes]) -> None:
    """In the same folder, since a rename works within one file system only."""
    unfinished = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with unfinished.open("xb") as file:
            shutil.copyfileobj(data, file)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            unfinished.chmod(stat.S_IMODE(target.stat().st_mode))
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _same(one: Path, other: Path) -> bool:
    """One file under two names, such as a hard link."""
    return one.exists() and other.exists() and one.samefile(other)


def _is_ours(path: Path) -> bool:
    """An empty file belongs to no one."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        if not head or _OURS.match(head):
            return True
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _FOOTER_BYTES_MAX))
        foot = file.read()
    if head.startswith(b"%PDF-"):
        return foot.endswith(PDF_MARK)
    return head.startswith(b"PAR1") and PARQUET_MARK in foot


def _begins_with(path: Path, what: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(what)) == what
