"""fio's job files as options with the lines that they stand in: sections, includes, variables, keywords, arithmetic.

`[global]` holds for the sections below it. Two sections of one name are two jobs. `include FILE` stands for the lines
of another file, `${NAME}` for a variable, `$pagesize`, `$mb_memory` and `$ncpus` for what this machine has, and what is
calculated (`(4*16)`, `8*$mb_memory`) for its value.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iotax.imports.fio_options import known_name, size_of
from iotax.imports.problems import Unreadable, text_of

EMPTY = "1"
"""What an option without a value stands for."""
_SECTION = re.compile(r"^\[(?P<name>.+)\]$")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KEYWORD = re.compile(r"\$(pagesize|mb_memory|ncpus)\b")
_SUM = re.compile(r"[\d(][\d\s().a-zA-Z]*[-+*/%^(][\d\s().a-zA-Z*/%^+-]*")
"""What may be a sum, as opposed to a range `4k-8k`, which fio never calculates."""
_TOKEN = re.compile(r"\s*(?:(?P<number>0x[0-9a-fA-F]+|\d[\w.]*)|(?P<sign>[-+*/%^()]))")
_INCLUDES_MAX = 32
_OPTIONS_MAX = 10_000


@dataclass(frozen=True)
class At:
    """A line of a job file, or of one that it includes."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass
class Section:
    """A job as its file has it."""

    name: str
    at: At
    options: dict[str, str] = field(default_factory=dict)
    """By the names that fio prefers; one that was given again stands last."""
    lines: dict[str, At] = field(default_factory=dict)

    def put(self, name: str, value: str, at: At) -> None:
        self.options.pop(name, None)
        self.options[name], self.lines[name] = value, at

    def place(self, name: str) -> At:
        """Of the option; of the section where it is not given."""
        return self.lines.get(name, self.at)

    def wrong(self, name: str, message: str) -> Unreadable:
        at = self.place(name)
        return Unreadable(at.path, message, line=at.line, at=name)


def read_jobs(path: Path, variables: Mapping[str, str]) -> list[Section]:
    """The jobs in the order of the file. `variables` count before those of the environment. Raises Unreadable."""
    shared = Section("global", At(path, 1))
    jobs: list[Section] = []
    own: Section | None = None
    lines = list(itertools.islice(_lines(path, depth=0), _OPTIONS_MAX + 1))
    if len(lines) > _OPTIONS_MAX:
        raise Unreadable(path, f"more than {_OPTIONS_MAX:,} options: not a benchmark's job file")
    _refuse_unset(lines, variables)
    for at, content in lines:
        if section := _SECTION.match(content):
            if section["name"] == "global":
                own = shared
                continue
            own = Section(_unused(section["name"], jobs), at, dict(shared.options), dict(shared.lines))
            jobs.append(own)
            continue
        if own is None:
            raise Unreadable(at.path, f"found {content[:60]!r} before any [job]: not a fio job file", line=at.line)
        name, equals, value = content.partition("=")
        text = _calculated(at, _expanded(value.strip(), variables)) if equals else ""
        own.put(known_name(name.strip()), text or EMPTY, at)
    if not jobs:
        raise Unreadable(path, "no [job] in it: not a fio job file")
    return jobs


def _unused(name: str, jobs: list[Section]) -> str:
    taken = {job.name for job in jobs}
    return (
        name
        if name not in taken
        else next(each for n in range(2, len(jobs) + 3) if (each := f"{name}-{n}") not in taken)
    )


def _lines(path: Path, depth: int) -> Iterator[tuple[At, str]]:
    """What is not a comment, and the lines of included files in their place."""
    if depth > _INCLUDES_MAX:
        raise Unreadable(path, "files include each other without end")
    for line, text in enumerate(text_of(path).splitlines(), start=1):
        content = text.split(";", 1)[0].split("#", 1)[0].strip()
        if not content:
            continue
        word, _, name = content.partition(" ")
        if word != "include" or "=" in content:
            yield At(path, line), content
            continue
        included = path.with_name(name.strip())
        if not included.is_file():
            raise Unreadable(path, f"no such file: {included}", line=line, at="include")
        for at, inner in _lines(included, depth + 1):
            if _SECTION.match(inner):
                raise Unreadable(at.path, "an included file has no [sections]", line=at.line)
            yield at, inner


def _refuse_unset(lines: Sequence[tuple[At, str]], variables: Mapping[str, str]) -> None:
    """fio takes a variable that is not set for empty, and then the option's default or nothing at all."""
    unset = {
        name: at
        for at, content in reversed(lines)
        for name in _VARIABLE.findall(content.partition("=")[2])
        if not _value(name, variables)
    }
    if unset:
        names = list(reversed(unset))
        at = unset[names[0]]
        said = f"the variable {names[0]} is" if len(names) == 1 else f"the variables {', '.join(names)} are"
        raise Unreadable(at.path, f"{said} not set: --set {names[0]}=VALUE, or set it in the environment", line=at.line)


def _value(name: str, variables: Mapping[str, str]) -> str:
    return variables.get(name, os.environ.get(name, ""))


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    expanded = _VARIABLE.sub(lambda found: _value(found[1], variables), text)
    return _KEYWORD.sub(lambda found: str(_of_machine(found[1])), expanded)


def _of_machine(keyword: str) -> int:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    if keyword == "pagesize":
        return page_bytes
    return os.cpu_count() or 1 if keyword == "ncpus" else os.sysconf("SC_PHYS_PAGES") * page_bytes >> 20


def _calculated(at: At, text: str) -> str:
    """The value of a sum; any other text as it is."""
    if not _SUM.fullmatch(text) or re.fullmatch(r"[\d.]+[a-zA-Z]*-[\d.]+[a-zA-Z]*", text):
        return text
    tokens = [(found["number"] or "", found["sign"] or "") for found in _TOKEN.finditer(text)]
    if len(text) > 200 or "".join(number + sign for number, sign in tokens) != "".join(text.split()):
        return text
    try:
        value, rest = _sum(tokens, 0)
    except (ValueError, ZeroDivisionError, IndexError, OverflowError):
        return text
    if rest != len(tokens) or value < 0:
        raise Unreadable(at.path, f"{text!r} cannot be calculated", line=at.line)
    return str(round(value))


_PRIORITY = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3}
_VALUE_MAX = 1e18


def _sum(tokens: list[tuple[str, str]], at: int, least: int = 1) -> tuple[float, int]:
    """(value, where it ends), by precedence climbing. Raises ValueError and IndexError where it is none."""
    value, at = _term(tokens, at)
    while at < len(tokens) and _PRIORITY.get(tokens[at][1], 0) >= least:
        sign = tokens[at][1]
        other, at = _sum(tokens, at + 1, _PRIORITY[sign] + 1)
        match sign:
            case "+":
                value += other
            case "-":
                value -= other
            case "*":
                value *= other
            case "/":
                value /= other
            case "%":
                value %= other
            case _:
                value = value**other if other <= 64 else _VALUE_MAX * 2
        if abs(value) > _VALUE_MAX:
            raise ValueError("too large")
    return value, at


def _term(tokens: list[tuple[str, str]], at: int) -> tuple[float, int]:
    number, sign = tokens[at]
    if sign == "(":
        value, at = _sum(tokens, at + 1)
        if tokens[at][1] != ")":
            raise ValueError("no bracket")
        return value, at + 1
    if not number or (size := size_of(number)) is None:
        raise ValueError("no number")
    return size, at + 1
