"""From a study file, and the inventory of hosts that it may name, to a Study; or to everything that is wrong with the
file at once. Values that may have been meant otherwise get a note."""

from __future__ import annotations

import difflib
import os
import types
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from iotax.study.endpoint import EMBEDDED, KERNEL, parse_endpoint
from iotax.study.imported import IMPORTED
from iotax.study.model import LABELLED, Study, factor_names
from iotax.study.published import Published, PublishedPart
from iotax.study.rules import broken_rules, published_rules
from iotax.study.service_times import settle_service_times
from iotax.study.setup import Setup
from iotax.study.source import Document, Mark, Place, Problem, StudyError, read_yaml
from iotax.units import read_as_binary

_SOME_ENDPOINT = "iscsi://192.0.2.1/iqn.2001-05.org.example:any/0"
"""In place of one that is malformed."""


def builtin_studies() -> dict[str, str]:
    """Name → YAML of the studies that come with iotax."""
    folder = resources.files("iotax.studies")
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".yaml")), key=lambda each: each.name)
    return {each.name.removesuffix(".yaml"): each.read_text(encoding="utf-8") for each in files}


def builtin_study(name: str) -> str:
    """The YAML of one. Raises StudyError."""
    builtin = builtin_studies()
    if name not in builtin:
        message = f"not a built-in study{_nearest(name, builtin)}; `iotax studies` lists them"
        raise StudyError(name, [Problem(None, (), message)])
    return builtin[name]


def load_study(name: str) -> tuple[Study, str]:
    """A built-in study by name or a file by path; with its text. Raises StudyError."""
    builtin = builtin_studies()
    if name in builtin:
        return read_study(f"{name}.yaml", builtin[name], folder_of(name)), builtin[name]
    path = Path(name)
    if not path.is_file():
        raise StudyError(name, [Problem(None, (), _no_study(path, builtin))])
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise StudyError(name, [Problem(None, (), "not a text file in UTF-8, as a study is")]) from None
    except OSError as error:
        raise StudyError(name, [Problem(None, (), f"cannot be read: {error}")]) from None
    return read_study(name, text, folder_of(name)), text


def _no_study(path: Path, builtin: Mapping[str, str]) -> str:
    if path.is_dir():
        return "a folder, not a study file"
    if path.suffix or path.parent != Path():
        return "there is no such file; `iotax studies` lists the built-in studies, `iotax init` writes a file"
    near = _nearest(str(path), builtin)
    return f"neither a file nor a built-in study{near}; `iotax studies` lists them, `iotax init` writes one"


def folder_of(name: str) -> Path:
    """Where relative paths of a study start: at its file, or here for a built-in one."""
    return Path.cwd() if name in builtin_studies() else Path(name).resolve().parent


def read_study(name: str, text: str, folder: Path) -> Study:
    """Reads the text of a study file; relative paths in it start at `folder`. Raises StudyError."""
    document = read_yaml(name, text)
    if not isinstance(document.data, dict):
        raise StudyError(
            name, [Problem(None, (), "a study is a mapping that begins with `name:`; `iotax init` writes one")]
        )
    problems = list(document.problems)
    if IMPORTED in document.data:
        message = "results of other programs have no plan to run; to measure here, leave it out and name real factors"
        raise StudyError(name, [Problem(document.mark((IMPORTED,)), (IMPORTED,), message)])
    problems += settle_inventory(document, folder)
    problems += settle_service_times(document, folder)
    problems += _factor_problems(document)
    _settle_endpoints(document, folder, problems)
    _settle_secrets(document.data, folder)
    _settle_paths(document.data, folder)
    study: Study | None = None
    try:
        study = Study.model_validate(document.data)
    except ValidationError as error:
        # What is said already about a place, or about a part of it, is said better.
        seen = {problem.place[:length] for problem in problems for length in range(1, len(problem.place) + 1)}
        problems += [each for each in _pydantic_problems(error, document) if each.place not in seen]
    if study is not None:
        # A place with an error has a stand-in, of which the rules know nothing useful.
        wrong = {problem.place for problem in problems}
        # Two rules may find the same.
        broken = dict.fromkeys((place, message) for place, message in broken_rules(study) if place not in wrong)
        problems += [Problem(document.mark(place), place, message) for place, message in broken]
    else:
        problems += _baseline_problems(document, {problem.place for problem in problems})
    if problems or study is None:
        raise StudyError(name, problems)
    return _settle_baseline(study)


def read_published(name: str, text: str, study: Study) -> Study:
    """The study with the published figures of a file: the list, or what a study has under `published`. Raises
    StudyError, with what fits no treatment of it."""
    document = read_yaml(name, text)
    whole = document.data
    place: Place = ("published",) if isinstance(whole, dict) else ()
    given = whole.get("published") if isinstance(whole, dict) else whole
    if not isinstance(given, list) or not given:
        said = "no published figures: write a list of sources, or `published:` with one (docs/reference/study.md)"
        raise StudyError(name, [*document.problems, Problem(document.mark(place), place, said)])
    inner = Document({"published": given}, document.marks if place else _below(document.marks), [])
    problems = [each for each in document.problems if each.place[:1] in ((), place[:1])]
    found: list[Published] = []
    try:
        found = PublishedPart.model_validate(inner.data).published
    except ValidationError as error:
        problems += _pydantic_problems(error, inner)
    with_them = study.model_copy(update={"published": found})
    problems += [Problem(inner.mark(at), at, message) for at, message in published_rules(with_them)]
    if problems:
        raise StudyError(name, problems)
    return with_them


def _below(marks: dict[Place, Mark]) -> dict[Place, Mark]:
    return {("published", *place): mark for place, mark in marks.items()}


def _factor_problems(document: Document) -> list[Problem]:
    """What pydantic would say less clearly: levels of `protocol`, and a factor that is one value."""
    factors = document.data.get("factors")
    if not isinstance(factors, dict):
        return []
    found = []
    for factor, levels in factors.items():
        place: Place = ("factors", factor)
        if factor not in factor_names():
            continue
        if factor in LABELLED and (isinstance(levels, dict) or factor == "streams"):
            continue
        if not isinstance(levels, list):
            message = f"a factor has a list of levels, found {_show(levels)}"
            if levels is not None and not isinstance(levels, dict):
                message += f"; write [{levels}, …]"
            found.append(Problem(document.mark(place), place, message))
        elif factor == "protocol":
            for index, level in enumerate(levels):
                if level not in _served(document):
                    at = (*place, index)
                    found.append(Problem(document.mark(at), at, _protocol_message(level, _served(document))))
    return found


def _served(document: Document) -> tuple[str, ...]:
    """The protocols that the study's lab serves itself."""
    return KERNEL if _has_lab(document, "vm") else EMBEDDED


def _has_lab(document: Document, name: str) -> bool:
    lab = document.data.get("lab")
    return lab == name or (isinstance(lab, dict) and name in lab)


def _protocol_message(level: object, served: tuple[str, ...]) -> str:
    if isinstance(level, dict):
        labels = ", ".join(f"{label}: {target}" for label, target in level.items() if isinstance(target, str))
        return (
            "a label within a list: write a list of protocols, or a mapping of labels only, in which a protocol is its "
            f"own label: {{iscsi: iscsi, {labels or 'array: …'}}}"
        )
    if isinstance(level, str) and ("/" in level or level.startswith("local:")):
        return f"{_show(level)} is an endpoint: give it a label, `protocol: {{array: {_show(level)}, …}}`"
    return f"unknown protocol {_show(level)}{_nearest(level, served)}; protocols are {', '.join(served)}"


def _settle_endpoints(document: Document, folder: Path, problems: list[Problem]) -> None:
    """Checks every endpoint and makes its path absolute, so that the notebook can resume from anywhere."""
    factors, connection = document.data.get("factors"), document.data.get("connection")
    places: list[tuple[dict, Place]] = []
    if isinstance(factors, dict) and isinstance(factors.get("protocol"), dict):
        places += [(factors["protocol"], ("factors", "protocol", label)) for label in factors["protocol"]]
    if isinstance(connection, dict) and connection.get("protocol") is not None:
        places.append((connection, ("connection", "protocol")))
    for holder, place in places:
        target = holder[place[-1]]
        if not isinstance(target, dict):
            _settle_endpoint(document, holder, place, folder, problems)
        elif isinstance(target.get("protocol"), str):
            _settle_setup(document, target, (*place, "protocol"), folder, problems)


def _settle_secrets(section: object, folder: Path) -> None:
    """Makes the path of every `secret_file` absolute, wherever credentials may stand."""
    if isinstance(section, list):
        for each in section:
            _settle_secrets(each, folder)
    if not isinstance(section, dict):
        return
    for name, value in section.items():
        if name == "secret_file" and isinstance(value, str) and value:
            section[name] = str(folder / value)
        else:
            _settle_secrets(value, folder)


def _settle_paths(section: object, folder: Path) -> None:
    """Makes the path of every kernel and target absolute: of factors, settings and the baseline."""
    if isinstance(section, list):
        for each in section:
            _settle_paths(each, folder)
    if not isinstance(section, dict):
        return

    def absolute(value: object) -> object:
        named = isinstance(value, str) and value.startswith(("./", "../", "~/", "/"))
        return str(Path(os.path.normpath(folder / Path(value).expanduser()))) if named else value

    for name, value in section.items():
        if name in ("kernel", "target_kernel", "target"):
            section[name] = [absolute(each) for each in value] if isinstance(value, list) else absolute(value)
        else:
            _settle_paths(value, folder)


def _settle_setup(document: Document, setup: dict, place: Place, folder: Path, problems: list[Problem]) -> None:
    """A protocol of the lab's own, or an endpoint."""
    target, served = setup["protocol"], _served(document)
    if "/" in target or target.startswith("local:"):
        _settle_endpoint(document, setup, place, folder, problems)
    elif target not in served:
        problems.append(Problem(document.mark(place), place, _protocol_message(target, served)))
        setup["protocol"] = EMBEDDED[-1]


def _settle_endpoint(document: Document, holder: dict, place: Place, folder: Path, problems: list[Problem]) -> None:
    name = place[-1]
    target = holder[name]
    if target is None and name in _served(document):
        problems.append(Problem(document.mark(place), place, f"a label without a meaning; write `{name}: {name}`"))
        holder[name] = name
        return
    try:
        endpoint = parse_endpoint(target if isinstance(target, str) else "", folder)
    except ValueError as error:
        near = "" if isinstance(target, str) and "/" in target else _nearest(target, _served(document))
        problems.append(Problem(document.mark(place), place, f"{_show(target)}{near}: {error}"))
        # So that the rest of the study can still be judged; on hosts a protocol without an endpoint needs a target.
        holder[name] = _SOME_ENDPOINT if _has_lab(document, "hosts") else EMBEDDED[-1]
    else:
        holder[name] = endpoint.uri or endpoint.protocol


def _settle_baseline(study: Study) -> Study:
    """The baseline's levels as the factors have them: `4k` under baseline is the level 4KiB."""
    levels = {name: level.value for name in study.baseline if (level := study.baseline_level(name))}
    return study.model_copy(update={"baseline": levels})


def _pydantic_problems(error: ValidationError, document: Document) -> Iterable[Problem]:
    for each in error.errors():
        # The first part is always a name of the file's, however strange.
        place = (*each["loc"][:1], *(part for part in each["loc"][1:] if not _is_branch(part)))
        if place == ("factors", "protocol") and each["type"] == "list_type" and isinstance(each["input"], dict):
            continue  # it has labels: what is wrong stands within
        yield Problem(document.mark(place), place, _message(each, place))


def _is_branch(part: str | int) -> bool:
    """Pydantic's locations also name the branch of a union, which the file knows nothing of."""
    return isinstance(part, str) and ("[" in part or part in {"str", "int", "float", "bool"})


def _message(error: Any, place: Place) -> str:
    found, kind = error["input"], error["type"]
    known = _names_at(place[:-1])
    if isinstance(found, list) and len(place) == 2 and factor_names().get(str(place[1])) == place[0]:
        return f"a list of levels belongs under factors: `factors: {{{place[1]}: […]}}`"
    match kind:
        case "extra_forbidden":
            if len(place) == 1:
                return f"unknown name{_nearest(place[-1], known)}; a study has {', '.join(known)}"
            if place[:2] == ("factors", "protocol"):
                known = list(Setup.model_fields)
                return f"unknown name{_nearest(place[-1], known)}; a label has {', '.join(known)}"
            if place[0] == "factors":
                return f"unknown factor{_nearest(place[-1], known)}; factors are {', '.join(known)}"
            section = next(part for part in reversed(place[:-1]) if isinstance(part, str))
            return f"unknown name{_nearest(place[-1], known)}; {section} has {', '.join(known)}"
        case "missing":
            return "missing"
        case "literal_error":
            expected = [word.strip(" '") for word in error["ctx"]["expected"].replace(" or ", ",").split(",")]
            return f"found {_show(found)}{_nearest(found, expected)}; one of {', '.join(expected)} is expected"
        case "value_error":
            return f"found {_show(found)}: {error['ctx']['error']}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"found {_show(found)}: write a mapping here, `{place[-1]}: {{NAME: VALUE}}`"
        case "list_type":
            return f"found {_show(found)}: write a list, `{place[-1]}: […]`"
        case "string_type":
            return f"found {_show(found)}: write text, such as '{found}' in quotes"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"found {_show(found)}: write a whole number"
        case "greater_than_equal":
            return f"found {_show(found)}: {error['ctx']['ge']} is the least"
        case "less_than_equal":
            return f"found {_show(found)}: {error['ctx']['le']} is the most"
        case "too_short":
            return "empty: give at least one"
        case "string_pattern_mismatch":
            return f"found {_show(found)}: use letters, digits, dots and dashes, 64 at most"
        case _:
            return f"found {_show(found)}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _names_at(place: Place) -> list[str]:
    """The names that the section at `place` knows."""
    model: Any = Study
    for part in place:
        if isinstance(part, int) and get_origin(model) is list:
            (model,) = get_args(model)
            continue
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or part not in model.model_fields:
            return []
        model = _section_of(model.model_fields[part].annotation)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _section_of(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next((part for part in get_args(annotation) if isinstance(part, type)), None)
    return annotation


def _baseline_problems(document: Document, seen: set[Place]) -> list[Problem]:
    """The baseline's names, checked even where other parts of the file keep the study from being built."""
    factors, baseline = document.data.get("factors"), document.data.get("baseline")
    if not isinstance(factors, dict) or not isinstance(baseline, dict):
        return []
    return [
        Problem(document.mark(place), place, f"not a factor of this study{_nearest(name, factors)}")
        for name in baseline
        if (place := ("baseline", name)) not in seen and name not in factors
    ]


def _nearest(word: object, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(names), n=1, cutoff=0.5) if isinstance(word, str) else []
    return f", did you mean {close[0]!r}?" if close else ""


def _show(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str) else str(value)


_KEY = "inventory"
_PLACE: Place = ("lab", "hosts")


def settle_inventory(document: Document, folder: Path) -> list[Problem]:
    """Puts the file's contents where the study names it, so that notebooks contain the hosts. Either `hosts:
    site.yaml`, or `hosts: {inventory: site.yaml, …}` with the study's own fields, which take precedence over the
    file's."""
    lab = document.data.get("lab")
    given = lab.get("hosts") if isinstance(lab, dict) else None
    named = given.get(_KEY) if isinstance(given, dict) else given
    if not isinstance(lab, dict) or not isinstance(named, str):
        return []
    own = {name: value for name, value in given.items() if name != _KEY} if isinstance(given, dict) else {}
    path = folder / Path(named).expanduser()
    try:
        lab["hosts"] = {**_hosts(path), **own}
    except (OSError, UnicodeDecodeError) as error:
        lab.pop("hosts")
        return [Problem(document.mark(_PLACE), _PLACE, f"the inventory {path} cannot be read: {error}")]
    except StudyError as error:
        lab.pop("hosts")
        return [Problem(document.mark(_PLACE), _PLACE, line) for line in error.lines()]
    return []


def _hosts(path: Path) -> dict[str, Any]:
    """Raises OSError, UnicodeDecodeError, StudyError."""
    found = read_yaml(str(path), path.read_text(encoding="utf-8"))
    if found.problems:
        raise StudyError(str(path), found.problems)
    if not isinstance(found.data, dict) or "initiators" not in found.data:
        message = "an inventory is a mapping with `initiators:`, and `targets:` where there are any"
        raise StudyError(str(path), [Problem(None, (), message)])
    return found.data


_SIZES = ("size", "block_size", "working_set")


def notes(text: str) -> list[str]:
    """One line for each such value of a valid study."""
    found = {value: binary for value in _sizes(read_yaml("", text).data, "") if (binary := read_as_binary(value))}
    if not found:
        return []
    read = ", ".join(f"{value} is {binary}" for value, binary in found.items())
    return [f"{read} here: sizes are binary, whether written with B or iB, as in fio"]


def _sizes(data: Any, name: str) -> Iterator[Any]:
    """Every value of a size field."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _sizes(value, key)
    elif isinstance(data, list):
        for value in data:
            yield from _sizes(value, name)
    elif name in _SIZES:
        yield data
