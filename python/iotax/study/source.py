"""A YAML reader that records the place of every value. It follows YAML 1.2 where it matters: `yes`, `on` and `1:30` are
text. It builds only mappings, lists and scalars."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml
from yaml.composer import Composer
from yaml.resolver import Resolver

Place: TypeAlias = tuple[str | int, ...]
"""Place in the document: `("factors", "block_size", 1)`."""


@dataclass(frozen=True)
class Mark:
    """Counted from 1, as in editors."""

    line: int
    column: int


@dataclass(frozen=True)
class Problem:
    """One error in a study file."""

    mark: Mark | None
    place: Place
    message: str

    def field(self) -> str:
        text = ""
        for part in self.place:
            text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
        return text


class StudyError(Exception):
    """All errors in a study file, in the order of its lines."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        self.name = name
        self.problems = sorted(problems, key=lambda each: (each.mark.line, each.mark.column) if each.mark else (0, 0))
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """`file:line:column: field: error`, which editors can jump to."""
        found = []
        for problem in self.problems:
            at = f":{problem.mark.line}:{problem.mark.column}" if problem.mark else ""
            of = f" {problem.field()}:" if problem.place else ""
            found.append(without_logins(f"{self.name}{at}:{of} {problem.message}"))
        return found


_LOGIN = re.compile(r"://(?:[^/\s'\"]*@|[^/\s'\"\[]*%[^/\s'\"]*)")


def without_logins(text: str) -> str:
    """Removes the part before a host in an address (`user%secret@host`), which may be a secret."""
    return _LOGIN.sub("://…@", text)


@dataclass
class Document:
    """Plain data and the place of each part: keys for the entries of a mapping, values for those of a list."""

    data: Any
    marks: dict[Place, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    built: int = 0
    """Values so far."""

    def mark(self, place: Place) -> Mark | None:
        """The mark of the place, or of the nearest thing around it."""
        while place and place not in self.marks:
            place = place[:-1]
        return self.marks.get(place)


def read_yaml(name: str, text: str) -> Document:
    """Reads one document. Raises StudyError if it is not YAML or too large for a study; duplicate keys become problems
    of the document."""
    if len(text) > _LETTERS_MAX:
        raise StudyError(name, [Problem(None, (), f"larger than {_LETTERS_MAX >> 20} Mi letters: no study is")])
    try:
        node = _composed(text)
    except RecursionError:
        raise StudyError(name, [Problem(None, (), "nested too deeply")]) from None
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = Mark(at.line + 1, at.column + 1) if at else None
        message = " ".join(part for part in (error.problem, error.context) if part)
        raise StudyError(name, [Problem(mark, (), f"not valid YAML: {message}")]) from None
    except yaml.YAMLError as error:
        raise StudyError(name, [Problem(None, (), f"not valid YAML: {error}")]) from None
    document = Document(None)
    if node is not None:
        document.marks[()] = _mark(node)
        try:
            document.data = _build(node, (), document)
        except _TooMuch:
            message = f"more than {_NODES_MAX:,} values, with aliases (*name) written out: no study has so many"
            raise StudyError(name, [Problem(None, (), message)]) from None
    return document


class _Scalars(Resolver):
    """The scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the base class has it so


_Scalars.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"true|false|True|False|TRUE|FALSE"), list("tTfF"))
_Scalars.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?\d+$"), list("-+0123456789"))
_Scalars.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?$"), list("-+.0123456789")
)
_Scalars.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(~|null|Null|NULL|)$"), ["~", "n", "N", ""])


class _Loader(_Scalars, yaml.SafeLoader):
    """SafeLoader with these scalars."""


if yaml.__with_libyaml__:

    class _Parsed(_Scalars, Composer, yaml.cyaml.CParser):
        """What libyaml parses, five times faster. Nodes are composed in Python, which notices deep nesting."""

        def __init__(self, text: str) -> None:
            yaml.cyaml.CParser.__init__(self, text)
            Composer.__init__(self)
            Resolver.__init__(self)


def _composed(text: str) -> yaml.Node | None:
    """The one node of a document. What libyaml refuses is read again in Python, whose messages say more."""
    if yaml.__with_libyaml__:
        try:
            return _Parsed(text).get_single_node()
        except (yaml.YAMLError, UnicodeError):
            pass
    return yaml.compose(text, Loader=_Loader)


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


_LETTERS_MAX = 1 << 20
_NODES_MAX = 100_000
"""A few lines with nested aliases can stand for billions of values."""
_DIGITS_MAX = 19
_NUMBER_MAX = (1 << 63) - 1
_DEPTH_MAX = 16
"""No study is nested so deeply: an anchor that contains itself would never end."""


class _TooMuch(Exception):  # noqa: N818 - what the document is
    """No study has so many values."""


def _build(node: yaml.Node, place: Place, document: Document) -> Any:
    document.built += 1
    if document.built > _NODES_MAX:
        raise _TooMuch
    if len(place) > _DEPTH_MAX:
        document.problems.append(Problem(_mark(node), place[:4], "nested too deeply"))
        return None
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(node, place, document)
    if isinstance(node, yaml.SequenceNode):
        built = []
        for index, item in enumerate(node.value):
            document.marks[*place, index] = _mark(item)
            built.append(_build(item, (*place, index), document))
        return built
    kind = node.tag.rpartition(":")[2]
    if kind in ("int", "float") and not _bounded(node.value):
        document.problems.append(Problem(_mark(node), place, f"found {node.value[:40]}, which no number here can be"))
        return None
    return _scalar(kind, node.value)


def _bounded(text: str) -> bool:
    """Whether a number fits 64 bits and is finite."""
    digits = text.lstrip("+-").partition(".")[0].lower().partition("e")[0]
    return len(digits) <= _DIGITS_MAX and len(text) <= 40 and abs(float(text)) <= _NUMBER_MAX


def _build_mapping(node: yaml.MappingNode, place: Place, document: Document) -> dict[str, Any]:
    built: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            document.problems.append(Problem(_mark(key), place, "a name must be a single word"))
            continue
        inner = (*place, key.value)
        if key.value in built:
            first = document.marks[inner]
            document.problems.append(Problem(_mark(key), inner, f"given twice, first in line {first.line}"))
            continue
        document.marks[inner] = _mark(key)
        built[key.value] = _build(value, inner, document)
    return built


def _scalar(kind: str, text: str) -> Any:
    match kind:
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "null":
            return None
        case _:
            return text
