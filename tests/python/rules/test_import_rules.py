"""Which module may depend on which: ARCHITECTURE.md's rules, checked in the sources."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest

from iotax.labs.generators import GENERATORS
from iotax.study import fields

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "python" / "iotax"
CRATES = ROOT / "crates"

PURE = ("study", "design", "analysis", "queueing", "wording")
NEVER_IN_PURE = {
    "iotax.labs", "iotax.engine", "iotax.runner", "iotax.notebook", "iotax.cli", "iotax.report", "iotax.environment",
    "subprocess", "sqlite3", "socket", "threading", "multiprocessing", "time", "asyncio",
}  # fmt: skip


@cache
def python_imports(path: Path) -> list[str]:
    """Every module that a file imports, at any level. Cached, because most rules check every file."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            module = "." * node.level + node.module
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return found


def importers_of(modules: set[str], files: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in python_imports(path)
        if any(name == module or name.startswith(f"{module}.") for module in modules)
    ]


def modules_of(*names: str) -> list[Path]:
    found = []
    for name in names:
        single = PACKAGE / f"{name}.py"
        found += [single] if single.exists() else sorted((PACKAGE / name).rglob("*.py"))
    return found


def test_pure_packages_import_no_lab_process_or_database() -> None:
    assert importers_of(NEVER_IN_PURE, modules_of(*PURE, "trial", "units")) == []


def test_no_test_asks_a_conftest_by_its_bare_name() -> None:
    """Which conftest such an import finds depends on the tests collected before."""
    assert importers_of({"conftest"}, sorted((ROOT / "tests").rglob("*.py"))) == []


def test_data_flows_one_way() -> None:
    """study → design → labs → runner → notebook → analysis → wording → report → cli: none imports a later one."""
    later = {
        "study": ("design", "analysis", "wording"),
        "design": ("analysis", "wording"),
        "analysis": ("wording",),
        "queueing": ("study", "design", "wording"),
    }
    for name, downstream in later.items():
        assert importers_of({f"iotax.{each}" for each in downstream}, modules_of(name)) == []
    after_labs = ("runner", "notebook", "analysis", "wording", "report", "cli")
    everything_after_labs = {f"iotax.{each}" for each in after_labs}
    assert importers_of(everything_after_labs, modules_of("labs", "engine")) == []
    readers = modules_of("notebook", "report", "wording")
    assert importers_of({"iotax.labs", "iotax.engine", "iotax.runner"}, readers) == []
    beside_cli = [path for path in PACKAGE.rglob("*.py") if "cli" not in path.relative_to(PACKAGE).parts]
    assert importers_of({"iotax.cli"}, [path for path in beside_cli if path.name != "__main__.py"]) == []


def test_places_know_no_lab_and_labs_reach_hosts_through_them_alone() -> None:
    beyond = {f"iotax.{each}" for each in ("labs", "design", "runner", "notebook", "analysis", "report", "cli")}
    places = modules_of("places")
    assert importers_of(beyond, places) == []
    assert importers_of({"iotax.study"}, places) == [
        f"python/iotax/places/{each}"
        for each in (
            "host.py imports iotax.study.hosts",
            "host.py imports iotax.study.hosts.Host",
            "slurm.py imports iotax.study.hosts",
            "slurm.py imports iotax.study.hosts.Slurm",
            "ssh.py imports iotax.study.hosts",
            "ssh.py imports iotax.study.hosts.Host",
            "workers.py imports iotax.study.hosts",
            "workers.py imports iotax.study.hosts.Cluster",
            "workers.py imports iotax.study.hosts.Host",
            "workers.py imports iotax.study.hosts.Slurm",
            "workers.py imports iotax.study.hosts.SlurmCluster",
        )
    ]
    hosts = PACKAGE / "labs" / "hosts" / "esxtop.py"
    assert importers_of({"asyncssh"}, modules_of("labs")) == importers_of({"asyncssh"}, [hosts])


def test_dask_is_known_to_one_place_and_its_agent_takes_nothing_but_pythons_own_library() -> None:
    dask = {"dask", "distributed", "dask_jobqueue", "cloudpickle"}
    everything = sorted(PACKAGE.rglob("*.py"))
    assert importers_of(dask, everything) == importers_of(dask, [PACKAGE / "places" / "workers.py"])
    assert importers_of({"iotax"}, [PACKAGE / "places" / "agent.py"]) == []
    # Studies over SSH import none of it.
    users = {line.partition(" ")[0] for line in importers_of({"iotax.places.workers"}, everything)}
    assert users == {f"python/iotax/labs/hosts/{name}.py" for name in ("reach", "relayed")}


def test_generators_are_told_apart_in_their_table_alone() -> None:
    """A lab uses a generator's own description, never its name."""
    assert set(GENERATORS) == set(get_args(fields.Generator))
    folder = PACKAGE / "labs" / "generators"
    outside = [path for path in modules_of("labs") if not path.is_relative_to(folder)]
    assert importers_of({"iotax.labs.generators.fio", "iotax.labs.generators.iotax"}, outside) == []
    named = []
    for path in outside:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        # The engine's lines have a key `command`.
        keys = {key for node in nodes if isinstance(node, ast.Dict) for key in node.keys if key}
        named += [path for node in nodes if isinstance(node, ast.Constant) and node not in keys
                  and node.value in set(GENERATORS) - {"iotax"}]  # fmt: skip
    assert named == []


def test_analysis_reads_a_trials_facts_from_its_record() -> None:
    """Analysis must not read static settings, which a factor or a lab may override, or parse an endpoint."""
    found = []
    for path in modules_of("analysis", "queueing", "report"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                of = ast.unparse(node.value)
                settings = of.endswith("study") and node.attr in ("lab", "load", "volume", "connection", "topology")
                if settings or of.endswith(("study.lab", "study.load")) or node.attr in ("Lab", "Loopback", "Vm"):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} reads {of}.{node.attr}")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                guessed = ("local:/", "127.0.0.1", "icount", "vm:")
                if node.value in ("local:", "icount") or node.value.startswith(guessed):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} knows {node.value!r}")
    assert found == []
    settings_types = {f"iotax.study.model.{name}" for name in ("Lab", "Loopback", "Vm", "LABS")}
    assert importers_of(settings_types | {"iotax.study.facts"}, modules_of("analysis", "queueing", "report")) == []
    for alone in ("records", "protocols"):
        assert importers_of({"iotax"}, modules_of(alone)) == importers_of({f"iotax.{alone}"}, modules_of(alone))


def test_only_the_runner_and_imports_write_measurements() -> None:
    writers = importers_of({"iotax.notebook.Writer"}, sorted(PACKAGE.rglob("*.py")))
    allowed = {
        "python/iotax/runner.py imports iotax.notebook.Writer",
        "python/iotax/cli/run.py imports iotax.notebook.Writer",
        "python/iotax/cli/imports.py imports iotax.notebook.Writer",
        "python/iotax/api.py imports iotax.notebook.Writer",
        "python/iotax/imports/write.py imports iotax.notebook.Writer",
    }
    assert set(writers) <= allowed


def test_the_live_view_compares_nothing() -> None:
    """It may check whether a run is valid. Estimates and verdicts belong to the report, after the plan ends."""
    comparing = {f"iotax.analysis.{name}" for name in ("summary", "compare", "estimate", "verdict")}
    assert (
        importers_of({*comparing, "iotax.wording.verdicts", "iotax.cli", "iotax.labs.loopback"}, modules_of("live"))
        == []
    )


def test_imported_formats_know_neither_studies_nor_notebooks() -> None:
    """Formats turn files into results; four other modules of the package decide how these are used."""
    beyond = {
        f"iotax.{each}" for each in ("labs", "engine", "runner", "analysis", "wording", "report", "cli", "design")
    }
    everything = modules_of("imports")
    assert importers_of(beyond, everything) == []
    deciding = {"campaign.py", "study.py", "naming.py", "write.py"}
    formats = [path for path in everything if path.name not in deciding]
    assert importers_of({"iotax.notebook", "iotax.study"}, formats) == []
    assert importers_of({"iotax.notebook"}, everything) == importers_of(
        {"iotax.notebook"}, [PACKAGE / "imports" / "write.py"]
    )


def test_the_command_line_starts_without_heavy_imports() -> None:
    light = {"typer", "iotax", "contextlib", "enum", "pathlib", "typing", "__future__"}
    files = [PACKAGE / "cli" / name for name in ("__init__.py", "app.py", "exits.py")]
    for path in files:
        tree = ast.parse(path.read_text())
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in top:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert {name.split(".")[0] for name in names} <= light, f"{path.name}: {names}"


CRATE_RULES = {
    "proto": set(),
    "node": {"iotax-proto"},
    "runtime": {"iotax-proto", "iotax-node"},
    "sim": {"iotax-proto", "iotax-node"},
    "engine": {"iotax-proto", "iotax-node", "iotax-runtime", "iotax-sim"},
}
COMMON = (
    "lib.rs",
    "backend.rs",
    "errors.rs",
    "initiator.rs",
    "origin.rs",
    "reservation.rs",
    "sequential.rs",
    "session_table.rs",
    "time.rs",
    "wire",
)
COMMAND_SETS = ("scsi", "nvme", "rpc")
FRAMES = ("fc",)
"""Frames that several transports use; they do not depend on any command set."""
TRANSPORTS = ("iscsi", "nvme_tcp", "nfs", "fcp", "fc_nvme")


SHARED_NAMES = {
    "proto": {
        "commands": "an initiator's commands under way, by tag",
        "connection": "one connection of a target",
        "control": "PDUs beside commands and data, and what a target does with them",
        "decode": "messages in words, for traces",
        "discovery": "what targets there are: asked and answered",
        "framer": "bytes → headers and pieces of data",
        "io": "I/O commands: from their bytes to operations, and back",
        "iu": "information units of FCP and FC-NVMe",
        "link": "what a connection sends, and what was agreed for it",
        "login": "logging in, on either side",
        "message": "messages as bytes",
        "reserve": "commands about reservations",
        "session": "one session of an initiator",
        "sessions": "the sessions that a target has with its clients",
    },
    "node": {
        "connector": "how a load connects",
        "node": "what one thread does",
        "options": "options of a protocol",
        "service": "what a server offers over a protocol",
    },
    "sim": {"paths": "paths between machines"},
    "engine": {
        "simulate": "the task `simulate`",
        "threads": "the threads of a task",
    },
    "runtime": {},
}
"""Per crate: file names that several files share, and what these files contain. Any other name belongs to one file."""


def rust_sources(crate: str) -> list[Path]:
    """Sources of a crate, without its tests."""
    return [
        path for path in sorted((CRATES / crate / "src").rglob("*.rs")) if "tests" not in path.relative_to(CRATES).parts
    ]


@cache
def rust_code(path: Path) -> str:
    """The source without comments, strings and the test module at its end."""
    text = path.read_text()
    text = re.split(r"#\[cfg\((?:all\()?test\b", text)[0]
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text)


@cache
def rust_paths(path: Path) -> list[str]:
    """Every `a::b::c` in a source, with groups of `use` expanded, and `self` and `super` resolved within the crate."""
    code = rust_code(path)
    crate_root = next(parent for parent in path.parents if parent.name == "src")
    module = list(path.relative_to(crate_root).with_suffix("").parts)
    if module[-1] in ("mod", "lib", "main"):
        module.pop()
    used = [_expand(re.sub(r"\s+", "", statement)) for statement in re.findall(r"\buse\s+([^;]+);", code)]
    named = re.findall(r"\b(?:crate|super|self|std|core)(?:::\w+)+", re.sub(r"\buse\s+[^;]+;", "", code))
    return [_resolve(name, module) for name in chain(*used, named)]


def _expand(use: str) -> Iterator[str]:
    head, brace, rest = use.partition("{")
    if not brace:
        yield use
        return
    depth, start, body = 0, 0, rest.rsplit("}", 1)[0]
    for index, letter in enumerate(f"{body},"):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if body[start:index]:
                yield from _expand(head + body[start:index])
            start = index + 1


def _resolve(name: str, module: list[str]) -> str:
    parts = name.split("::")
    base = list(module)
    while parts and parts[0] in ("super", "self"):
        if parts.pop(0) == "super":
            base = base[:-1]
        if not parts or parts[0] not in ("super", "self"):
            return "::".join(["crate", *base, *parts])
    return "::".join(parts)


def test_every_crate_and_layer_of_proto_has_a_rule() -> None:
    assert {path.name for path in CRATES.iterdir()} == set(CRATE_RULES)
    assert {path.name for path in (CRATES / "proto" / "src").iterdir()} == {
        *COMMON,
        *COMMAND_SETS,
        *FRAMES,
        *TRANSPORTS,
    }


@pytest.mark.parametrize("crate", CRATE_RULES)
def test_a_file_name_has_one_meaning_within_a_crate(crate: str) -> None:
    names = Counter(path.stem for path in rust_sources(crate) if path.stem not in ("mod", "tests"))
    assert {name for name, count in names.items() if count > 1} == set(SHARED_NAMES[crate])


@pytest.mark.parametrize("crate", CRATE_RULES)
def test_crates_depend_downwards_only(crate: str) -> None:
    manifest = tomllib.loads((CRATES / crate / "Cargo.toml").read_text())
    ours = {name for name in manifest.get("dependencies", {}) if name.startswith("iotax-")}
    assert ours <= CRATE_RULES[crate]


def test_proto_knows_wire_then_command_sets_then_transports() -> None:
    broken = []
    for path in rust_sources("proto"):
        layer = path.relative_to(CRATES / "proto" / "src").parts[0]
        forbidden: tuple[str, ...] = ()
        if layer in COMMON and layer != "lib.rs":
            forbidden = (*COMMAND_SETS, *FRAMES, *TRANSPORTS)
        elif layer in (*COMMAND_SETS, *FRAMES):
            forbidden = (*TRANSPORTS, *(each for each in (*COMMAND_SETS, *FRAMES) if each != layer))
        elif layer in TRANSPORTS:
            forbidden = tuple(each for each in TRANSPORTS if each != layer)
        for name in rust_paths(path):
            parts = name.split("::")
            if parts[0] == "crate" and len(parts) > 1 and parts[1] in forbidden:
                broken.append(f"{path.relative_to(ROOT)}: {name}")
    assert broken == []


def test_initiators_and_targets_do_not_know_each_other() -> None:
    broken = []
    for path in rust_sources("proto"):
        parts = path.relative_to(CRATES / "proto" / "src").with_suffix("").parts
        sides = (("initiator", "target_side"), ("host", "controller"))
        for own, other in (*sides, *((other, own) for own, other in sides)):
            if own in parts:
                here = parts[: parts.index(own)]
                broken += [
                    f"{path.relative_to(ROOT)}: {name}"
                    for name in rust_paths(path)
                    if name.split("::")[: len(here) + 2] == ["crate", *here, other]
                ]
    assert broken == []


def test_protocols_are_told_apart_in_their_table_alone() -> None:
    """`crates/node/src/protocols/mod.rs` has a row per protocol. Code outside its folder is common to all."""
    folder = CRATES / "node" / "src" / "protocols"
    rows = re.findall(r"^    (\w+) in (\w+),$", (folder / "mod.rs").read_text(), flags=re.MULTILINE)
    assert {path.stem for path in folder.iterdir() if path.is_dir() or path.name == "toy.rs"} == {at for _, at in rows}
    named = re.compile(
        rf"\b(?:Protocol|RemoteUnit|AnyInitiator|AnyTarget|Exported)::(?:{'|'.join(name for name, _ in rows)})\b"
    )
    outside = [
        path
        for crate in ("node", "runtime", "engine")
        for path in rust_sources(crate)
        if not path.is_relative_to(folder)
    ]
    assert [str(path.relative_to(ROOT)) for path in outside if named.search(rust_code(path))] == []
    assert any(named.search(rust_code(path)) for path in folder.rglob("*.rs"))


ROOMS_OF_NODE = {
    "volume": ("fs", "load", "protocols", "server"),
    "fs": ("load", "protocols", "server"),
    "server": ("load",),
    "load": ("fs", "server", "volume"),
}


@pytest.mark.parametrize("room", ROOMS_OF_NODE)
def test_server_and_load_generator_know_each_other_by_the_protocols_alone(room: str) -> None:
    broken = []
    for path in rust_sources("node"):
        if path.relative_to(CRATES / "node" / "src").parts[0] == room:
            named = {name.split("::")[1] for name in rust_paths(path) if name.startswith("crate::")}
            broken += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(named & set(ROOMS_OF_NODE[room]))]
    assert broken == []


def test_what_versions_of_nfs_share_knows_none_of_them() -> None:
    """A further version fits next to `v3`; the server's files and trees (`node/fs`) serve any version."""
    nfs = CRATES / "proto" / "src" / "nfs"
    forbidden = {
        nfs / "common": ("crate::nfs::v", "crate::nfs::mount", "crate::nfs::NfsBackend"),
        nfs / "mod.rs": ("crate::nfs::v",),
        nfs / "mount.rs": ("crate::nfs::v",),
        CRATES / "node" / "src" / "fs": (
            "iotax_proto::nfs::v",
            "iotax_proto::nfs::mount",
            "iotax_proto::nfs::NfsBackend",
        ),
    }
    for room, others in forbidden.items():
        sources = [path for crate in ("proto", "node") for path in rust_sources(crate) if path.is_relative_to(room)]
        assert sources
        assert [f"{path}: {name}" for path in sources for name in rust_paths(path) if name.startswith(others)] == []


@pytest.mark.parametrize("word", ["iscsi", "iqn", "isid", "fcp"])
def test_scsi_knows_no_transport(word: str) -> None:
    """A transport's names and numbers come only from the transport (`scsi::Ports`)."""
    scsi = [path for path in rust_sources("proto") if "scsi" in path.relative_to(CRATES).parts]
    found = [path for path in scsi if re.search(word, rust_code(path), re.I)]
    assert [str(path.relative_to(ROOT)) for path in found] == []


FORBIDDEN_STD = ("time", "net", "fs", "thread", "process", "env", "io")
ADDRESS_TYPES = {"SocketAddr", "SocketAddrV4", "SocketAddrV6", "IpAddr", "Ipv4Addr", "Ipv6Addr", "AddrParseError"}


@pytest.mark.parametrize("crate", ["proto", "node", "sim"])
def test_sans_io_crates_name_no_clock_socket_thread_or_file(crate: str) -> None:
    broken = []
    for path in rust_sources(crate):
        for name in rust_paths(path):
            parts = name.split("::")
            if parts[0] not in ("std", "core") or len(parts) < 2 or parts[1] not in FORBIDDEN_STD:
                continue
            if parts[1] == "net" and len(parts) > 2 and parts[2] in ADDRESS_TYPES:
                continue
            if parts[1:3] == ["time", "Duration"]:
                continue  # a duration, not a clock
            broken.append(f"{path.relative_to(ROOT)}: {name}")
    assert broken == []


def circle(arrows: dict[Path, set[Path]]) -> list[str]:
    """A cycle of imports between files; empty if there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as found:
        return [str(path.relative_to(ROOT)) for path in found.args[1]]
    return []


@pytest.mark.parametrize("crate", CRATE_RULES)
def test_no_rust_files_know_each_other_in_a_circle(crate: str) -> None:
    """Dependencies between a folder's `mod.rs` and the files in it are ignored."""
    sources = CRATES / crate / "src"
    files: dict[tuple[str, ...], Path] = {}
    for path in rust_sources(crate):
        parts = path.relative_to(sources).with_suffix("").parts
        if parts[-1] not in ("lib", "main"):
            files[parts[:-1] if parts[-1] == "mod" else parts] = path
    arrows: dict[Path, set[Path]] = {}
    for parts, path in files.items():
        named = [tuple(name.split("::")[1:]) for name in rust_paths(path) if name.startswith("crate::")]
        heads = {name[:length] for name in named for length in range(1, len(name) + 1)}
        own = {head for head in heads if head == parts[: len(head)] or parts == head[: len(parts)]}
        arrows[path] = {files[head] for head in heads - own if head in files}
    assert len(arrows) > 10
    assert circle(arrows) == []


def test_a_module_that_is_run_as_a_program_is_defined_before_it_runs() -> None:
    programs = []
    for path in sorted(PACKAGE.rglob("*.py")):
        body = ast.parse(path.read_text()).body
        ran = [node for node in body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)]
        assert ran in ([], body[-1:]), f"{path}: its last lines run it"
        programs += ran
    assert len(programs) > 2


def test_no_python_files_know_each_other_in_a_circle() -> None:
    """Imports for types count too; those of a package's own `__init__` do not."""
    files = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
    arrows = {path: {files[name] for name in python_imports(path) if name in files} for path in files.values()}
    assert sum(map(len, arrows.values())) > 500
    assert circle(arrows) == []


def test_each_python_package_stands_above_all_that_it_imports() -> None:
    """The order of the map in ARCHITECTURE.md, which must contain every package."""
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("## The Python packages")[2].partition("\n## ")[0]
    lines = [re.split(r" {2,}", line)[1].split() for line in section.splitlines() if line.startswith("    ")]
    floors = {name: len(lines) - number for number, names in enumerate(lines) for name in names}
    packages = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    assert set(floors) == packages - {"__init__", "__main__", "studies"}  # entry points, and data
    upwards = []
    for name, floor in floors.items():
        for path in modules_of(name):
            imported = {module.split(".")[1] for module in python_imports(path) if module.startswith("iotax.")}
            upwards += [f"{path.relative_to(ROOT)} imports {each}" for each in imported if floors.get(each, 0) > floor]
    assert upwards == []


def test_a_circle_is_found() -> None:
    one, two, three = (ROOT / name for name in ("one", "two", "three"))
    assert set(circle({one: {two}, two: {three}, three: {one}})) == {"one", "two", "three"}
    assert circle({one: {two, three}, two: {three}}) == []


def test_the_rules_see_through_groups_and_supers() -> None:
    assert sorted(_expand("a::{b::{C,D},e,self}")) == ["a::b::C", "a::b::D", "a::e", "a::self"]
    assert _resolve("super::super::nvme::X", ["scsi", "sense"]) == "crate::nvme::X"
    assert _resolve("self::x", ["scsi"]) == "crate::scsi::x"
