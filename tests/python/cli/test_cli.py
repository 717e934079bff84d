"""The command line as a user sees it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer.main
from typer.testing import CliRunner

from documented_keys import documented
from faked import FakeEngine
from iotax.cli.app import app
from iotax.cli.commands import Root
from iotax.cli.exits import Exit
from iotax.study.read import builtin_study


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def iotax(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_help_names_every_command_and_exit_code() -> None:
    done = subprocess.run([sys.executable, "-m", "iotax", "--help"], capture_output=True, text=True, check=True)
    for command in ("run", "plan", "check", "show", "report", "export", "studies", "init", "completion"):
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE)
    codes = re.sub(r"\s+", " ", done.stdout).partition("Exit codes: ")[2]
    assert {int(code) for code in re.findall(r"(?:^|· )(\d+) ", codes)} == {int(code) for code in Exit}


@pytest.mark.parametrize("group", [(), ("lab",), ("lab", "vm"), ("lab", "hosts"), ("sim",)])
def test_no_summary_of_a_command_is_cut(group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = iotax(*group, "--help").output.partition("Commands:")[2]
    assert commands
    assert "..." not in commands


@pytest.mark.parametrize("words", [("studies", "quick"), ("size", "--iops", "70k", "--cpu-us", "81")])
def test_a_full_disk_behind_standard_output_is_said_in_a_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "iotax", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == Exit.USAGE
    assert done.stderr == "iotax: the output cannot be written: No space left on device\n"


def test_a_study_is_not_begun_in_a_folder_nor_under_the_name_of_a_built_in_one() -> None:
    inside, built_in = iotax("init", "."), iotax("init", "quick")
    assert inside.exit_code == built_in.exit_code == Exit.USAGE
    assert "name a file, such as study.yaml" in inside.output
    assert "iotax init quick.yaml --from quick" in built_in.output
    assert not list(Path().iterdir())


def test_the_next_command_can_be_typed_whatever_the_file_is_called() -> None:
    assert "Next: iotax plan 'a study.yaml'" in iotax("init", "a study.yaml").output


def test_a_comparison_that_no_study_can_ask_leaves_no_file() -> None:
    deep = iotax("vs", "nfs3", "iscsi", "--iodepth", 100_000_000)
    small = iotax("vs", "nfs3", "iscsi", "--size", "1k")
    assert deep.exit_code == small.exit_code == Exit.USAGE
    assert "iotax: --size: 512MiB cannot hold all I/Os in flight" in deep.output
    assert "iotax: --size: 1KiB is not a multiple of the block size 4KiB" in small.output
    assert not Path("out").exists()


def test_a_share_of_reads_is_refused_where_nothing_is_mixed() -> None:
    done = iotax("vs", "nfs3", "iscsi", "--rwmixread", 75)
    assert done.exit_code == Exit.USAGE
    assert "--rwmixread is for a mix, and --rw randread is none" in done.output


def test_help_loads_nothing_that_it_does_not_need() -> None:
    code = "import iotax.cli, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "pandas", "scipy", "rich", "sqlite3", "yaml"} & set(loaded)


def test_every_command_has_help() -> None:
    for command in ("run", "plan", "check", "show", "report", "export", "studies", "init", "completion"):
        done = iotax(command, "--help")
        assert done.exit_code == 0
        assert "Usage: " in done.output


def test_lists_of_unknown_width_have_whole_first_sentences_of_commands() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, Root)
    shown = dict(group.lines())
    assert "vs" in shown and "lab" in shown
    assert [name for name, text in shown.items() if text.endswith("...")] == []


def test_plan_shows_trials_in_order_and_runs_nothing(tiny: Path) -> None:
    done = iotax("plan", "--long", tiny)
    assert done.exit_code == 0
    assert [line.rstrip() for line in done.output.splitlines()] == [
        "tiny: Does it run?",
        "order  block  replicate  protocol  outstanding",
        "    1      1          1  local     8",
        "    2      1          1  iscsi     1",
        "    3      1          1  local     1",
        "    4      1          1  iscsi     8",
        "    5      2          2  iscsi     1",
        "    6      2          2  local     8",
        "    7      2          2  iscsi     8",
        "    8      2          2  local     1",
        "Load: 1 worker × 1 or 8 outstanding on 1 thread; closed loop; warm-up 0s, measured 10ms; reads verified.",
        "Mix: blocks of 4KiB, 75% read, 100% random.",
        "Volume: 1MiB, memory; filled with pattern, never refilled.",
        "Lab: loopback (driver auto, threads 1).",
        "Compared: iops, latency, cpu_per_io; baseline protocol iscsi; equivalent within 5%.",
        "8 trials in 2 blocks, about 2 s; seed 7.",
        "Full factorial: 4 treatments.",
        "Minimum detectable difference between two treatments (90 % power), by assumed run-to-run variation: "
        "5.1 % at 1 %, 10.5 % at 2 %, 16.2 % at 3 %, 28.5 % at 5 %, 64.9 % at 10 %.",
        "Minimum detectable difference between two arms over all conditions (90 % power), by assumed run-to-run "
        "variation: 3.6 % at 1 %, 7.3 % at 2 %, 11.2 % at 3 %, 19.4 % at 5 %, 42.4 % at 10 %.",
        "Absolute values (µs, IOPS) include drift between blocks: over 2 blocks their 95 % intervals reach 12.7 "
        "standard "
        "errors to each side, over 5 only 2.8. Ratios between treatments do not include it.",
    ]
    assert list(Path.cwd().glob("**/*.iotax")) == []


def test_plan_says_on_one_screen_what_a_study_does_and_what_it_detects(tiny: Path) -> None:
    done = iotax("plan", tiny)
    assert done.exit_code == 0
    assert [line.rstrip() for line in done.output.splitlines()] == [
        "tiny: Does it run?",
        "Factor    protocol: local, iscsi.",
        "Factor    outstanding: 1, 8.",
        "Design    Full factorial: 4 treatments.",
        "Takes     8 trials in 2 blocks, about 2 s; seed 7.",
        "Load      1 worker × 1 or 8 outstanding on 1 thread; closed loop; warm-up 0s, measured 10ms; reads verified.",
        "Mix       blocks of 4KiB, 75% read, 100% random.",
        "Volume    1MiB, memory; filled with pattern, never refilled.",
        "Lab       loopback (driver auto, threads 1).",
        "Compared  iops, latency, cpu_per_io; baseline protocol iscsi; equivalent within 5%.",
        "Detects with 90 % power, if runs vary by    1 %     2 %     3 %     5 %    10 %",
        "between two treatments                    5.1 %  10.5 %  16.2 %  28.5 %  64.9 %",
        "between two arms over all conditions      3.6 %   7.3 %  11.2 %  19.4 %  42.4 %",
        "--long lists the trials in order and explains the design.",
    ]


def test_a_size_in_decimal_units_is_said_once_to_be_binary(tiny: Path) -> None:
    text = tiny.read_text()
    tiny.write_text(text.replace("1MiB", "1MB"))
    done = iotax("plan", tiny)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "note: 1MB is 1MiB here: sizes are binary, whether written with B or iB, as in fio"
    ]
    tiny.write_text(text)
    assert iotax("plan", tiny).stderr == ""


def test_quantities_are_written_on_the_command_line_as_in_a_study() -> None:
    sized = iotax("size", "--iops", "70k", "--cpu-us", "81", "--cap", "80%")
    assert sized.exit_code == 0
    assert "70,000 IOPS, cores at most 80 % busy" in sized.output
    for words in (("size", "--cpu-us", "81", "--cap", "0.8"), ("compare", "a", "b", "--margin", "0.8")):
        refused = iotax(*words)
        assert refused.exit_code == 2
        assert "found '0.8': a fraction of 1 or a percentage? Write 80% or 0.8%" in refused.output
    refused = iotax("compare", "a", "b", "--margin", "5%").output
    assert "no notebook in out/; `iotax run` creates one, or name one; a and b are not files here either" in refused
    assert "or give --cpu-us 81" in iotax("size", "--iops", "70k").output


def test_a_broken_study_is_a_usage_error_with_lines(tiny: Path) -> None:
    tiny.write_text(tiny.read_text().replace("outstanding", "outstandin"))
    for command in ("plan", "check", "run"):
        done = iotax(command, tiny)
        assert done.exit_code == 2
        assert f"{tiny}:6:3: factors.outstandin: unknown factor, did you mean 'outstanding'?" in done.output


def test_a_run_ends_with_its_table_and_notebook(engine: FakeEngine, tiny: Path) -> None:
    del engine
    done = iotax("run", tiny, "--no-report", "--long")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert "8 trials in 2 blocks, about 2 s." in lines
    assert any(re.match(r"protocol +outstanding +IOPS", line) for line in lines)
    assert any(re.match(r"iscsi +8 +800k .* 100 +2 *$", line) for line in lines)
    assert any(re.match(r"local +8 +800k .* 100 +(equivalent +)?2 *$", line) for line in lines)
    assert lines[-1] == "Notebook: out/tiny.iotax"


def test_failed_trials_end_with_their_own_exit_code(engine: FakeEngine, tiny: Path) -> None:
    engine.faults(every="die")
    done = iotax("run", tiny, "--no-report")
    assert done.exit_code == 1
    assert "Given up: local/8/r1, iscsi/1/r1" in done.output
    assert "0 of 8 trials are done." in iotax("show").output
    shown = iotax("show", "--long").output
    assert "local/8/r1, attempt 2: failed: the load process was ended by SIGKILL" in shown


def test_without_an_engine_it_is_said_what_to_do(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTAX_ENGINE", "/nowhere/iotax-engine")
    for command in ("run", "check"):
        done = iotax(command, tiny)
        assert done.exit_code == 4
        assert "IOTAX_ENGINE names /nowhere/iotax-engine, which is not a program" in done.output


def test_a_driver_on_the_command_line_is_another_study(engine: FakeEngine, tiny: Path) -> None:
    assert iotax("run", tiny, "--no-report", "--driver", "epoll").exit_code == 0
    assert {each["driver"] for each in engine.documents("serve")} == {"epoll"}
    assert {each["driver"] for each in engine.documents("load", task="run")} == {"epoll"}


def test_show_and_export_without_a_notebook_say_so(engine: FakeEngine) -> None:
    del engine
    for command in ("show", "export", "report"):
        assert iotax(command).exit_code == 5
        assert "there is no notebook here" in iotax(command, "none.iotax").output


def test_exports_hold_every_attempt(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    engine.faults(run_2="die")
    iotax("run", tiny, "--no-report")
    rows = list(csv.DictReader(io.StringIO(iotax("export").output)))
    assert [row["status"] for row in rows] == ["done", "failed", *["done"] * 7]
    assert rows[1]["rate_iops"] == ""
    assert rows[0]["protocol"] == "local"
    assert float(rows[0]["rate_iops"]) == pytest.approx(800_000)
    assert float(rows[0]["latency_p99_9_ns"]) > 0
    whole = json.loads(iotax("export", "--format", "json").output)
    assert whole["study"]["name"] == "tiny"
    assert len(whole["attempts"]) == 9
    assert whole["environments"][0]["engine"] == "iotax-engine 0-fake"
    pytest.importorskip("pyarrow")
    assert iotax("export", "-f", "parquet", "-o", "t.parquet").exit_code == 0
    frame = pd.read_parquet(tmp_path / "t.parquet")
    assert len(frame) == 9
    assert frame["rate_iops"].isna().sum() == 1


def test_an_export_of_a_run_that_is_not_there_is_refused(engine: FakeEngine, tiny: Path) -> None:
    del engine
    iotax("run", tiny, "--no-report")
    done = iotax("export", "--run", "7")
    assert done.exit_code == 5
    assert "holds no run 7; its runs: 1" in done.output


def test_init_writes_a_study_that_plans_and_overwrites_none() -> None:
    assert iotax("init").exit_code == 0
    assert iotax("plan", "study.yaml").exit_code == 0
    assert json.loads(Path("study.schema.json").read_text())["title"] == "An iotax study"
    again = iotax("init")
    assert again.exit_code == 2
    assert "study.yaml already exists" in again.output


def test_init_begins_with_a_built_in_study_under_the_name_of_the_file() -> None:
    assert iotax("init", "mine.yaml", "--from", "grid").exit_code == 0
    text = Path("mine.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=study.schema.json\nname: mine\nquestion: Can NVMe/TCP")
    assert text.splitlines()[2:] == builtin_study("grid").splitlines()[1:]
    assert "5 sessions of 5 rounds of 24 treatments" in iotax("plan", "mine.yaml").output
    assert iotax("init", "my study.yaml", "--from", "grid").exit_code == 0
    assert "\nname: grid\n" in Path("my study.yaml").read_text()
    unknown = iotax("init", "other.yaml", "--from", "gird")
    assert unknown.exit_code == 2
    assert "gird: not a built-in study, did you mean 'grid'?" in unknown.output
    assert not Path("other.yaml").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qiuck", "neither a file nor a built-in study, did you mean 'quick'?; `iotax studies` lists them"),
        ("mine.yaml", "there is no such file; `iotax studies` lists the built-in studies, `iotax init` writes a file"),
        ("studies/quick", "there is no such file;"),
        (".", "a folder, not a study file"),
    ],
)
def test_a_study_that_does_not_exist_is_refused_as_what_its_name_looks_like(name: str, said: str) -> None:
    refused = iotax("plan", name)
    assert refused.exit_code == 2
    assert refused.output.startswith(f"{name}: {said}")


def test_quiet_says_only_what_went_wrong(tiny: Path, engine: FakeEngine) -> None:
    tiny.write_text(tiny.read_text().replace("[1, 8]", "[1]").replace("replicates: 2", "replicates: 1"))
    done = iotax("run", tiny, "a.iotax", "--quiet")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert Path("a.html").is_file()
    engine.faults(every="die")
    done = iotax("run", tiny, "a.iotax", "--quiet", "--again", "--no-report")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "attempt 1 failed" in done.stderr and "trials in" not in done.stderr
    done = iotax("run", tiny, "a.iotax", "--quiet", "--json", "--no-report")
    assert json.loads(done.stdout)["given_up"] and "Adding" not in done.stderr


def test_studies_prints_one_as_it_is() -> None:
    done = iotax("studies", "quick")
    assert (done.exit_code, done.output) == (0, builtin_study("quick"))
    assert iotax("studies", "quik").exit_code == 2
    assert "did you mean 'quick'" in iotax("studies", "quik").output


def test_a_file_that_is_called_like_a_built_in_study_is_said_not_to_be_read() -> None:
    assert "note: quick" not in iotax("plan", "quick").stderr
    Path("quick").write_text("no study")
    done = iotax("plan", "quick")
    assert done.exit_code == 0
    assert "note: quick is a built-in study, and the file quick here was not read; for that say ./quick" in done.stderr
    assert iotax("plan", "./quick").exit_code == Exit.USAGE


def completed(shell: str, *words: str) -> list[str]:
    """The shell's completions of the last word."""
    variables = {
        "_IOTAX_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": " ".join(words),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    command = [sys.executable, "-m", "iotax"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | variables)
    return done.stdout.splitlines()


def test_bash_completes_commands_studies_files_and_notebooks(tiny: Path) -> None:
    Path("out").mkdir()
    Path("out/quick.iotax").touch()
    assert completed("bash", "iotax", "stu") == ["studies"]
    assert completed("bash", "iotax", "plan", "qu") == ["quick"]
    assert completed("bash", "iotax", "run", tiny.name[:2]) == [tiny.name]
    assert completed("bash", "iotax", "show", "out/") == ["out/quick.iotax"]
    assert completed("bash", "iotax", "init", "--from", "cpu") == ["cpu-cost-full", "cpu-cost"]
    assert completed("bash", "iotax", "run", "--driver", "e") == ["epoll"]


def test_zsh_and_fish_complete_too() -> None:
    assert completed("zsh", "iotax", "studies", "ip") == ['_arguments \'*: :(("ip-vs-fc-full"', '"ip-vs-fc"))\'']
    assert completed("fish", "iotax", "studies", "ip") == ["ip-vs-fc-full", "ip-vs-fc"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_iotax(shell: str) -> None:
    done = iotax("completion", shell)
    assert done.exit_code == 0
    assert f"_IOTAX_COMPLETE=complete_{shell}" in done.output


def test_bash_reads_its_script() -> None:
    script = iotax("completion", "bash").output
    registered = subprocess.run(
        ["bash", "--norc"], input=f"{script}\ncomplete -p iotax\n", capture_output=True, text=True, check=True
    )
    assert "-F _iotax_completion iotax" in registered.stdout


def test_studies_lists_the_built_in_ones() -> None:
    done = iotax("studies")
    assert re.search(r"^quick +72 +2 min \d+ s +What does each 4 KiB", done.output, re.MULTILINE)


def test_check_of_the_quick_study_answers_for_each_protocol(engine: FakeEngine) -> None:
    del engine
    done = iotax("check", "quick")
    assert done.exit_code == 0, done.output
    for protocol in ("local", "nfs3", "iscsi", "nvme-tcp"):
        assert f"ok {protocol}: the embedded server answers" in done.output


def test_a_run_says_what_it_asks_before_it_loads_what_is_heavy(tiny: Path) -> None:
    code = (
        "import sys; from iotax.cli.display import Display; from iotax.cli.app import app\n"
        "Display.asked = lambda self, study: (print(study.name, *sys.modules), sys.exit(0))\n"
        f"app(['run', {str(tiny)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, *loaded = done.stdout.split()
    assert first == "tiny"
    assert not {"scipy", "pandas", "numpy", "jinja2", "vl_convert"} & set(loaded)


@pytest.mark.parametrize("words", [("vs", "local", "iscsi"), ("aa", "TINY"), ("run", "kernel-quick")])
def test_the_first_line_comes_before_what_is_heavy(words: tuple[str, ...], tiny: Path, tmp_path: Path) -> None:
    """Modules that are loaded when the first character is written. Loading the heavy ones takes seconds of CPU time."""
    code = (
        "import io, os, sys\n"
        "class First(io.TextIOWrapper):\n"
        "    def write(self, text):\n"
        "        sys.stderr.write(' '.join(sys.modules)); sys.stderr.flush(); os._exit(0)\n"
        "sys.stdout = First(sys.stdout.buffer, write_through=True)\n"
        f"from iotax.cli.app import app; app({[str(tiny) if word == 'TINY' else word for word in words]!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "iotax.cli.app" in done.stderr.split()
    assert not {"scipy", "pandas", "numpy", "jinja2", "vl_convert"} & set(done.stderr.split())


def test_what_boots_no_guest_needs_no_lzma() -> None:
    """A Python that was built without lzma's headers has no lzma."""
    code = (
        "import sys; sys.modules['_lzma'] = None\n"
        "import iotax.api, iotax.cli.kernels, iotax.cli.run, iotax.cli.study, iotax.labs.loopback, iotax.runner\n"
        "assert 'iotax run kernel-exact' in iotax.cli.kernels._how_to_measure()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("arguments", "also"),
    [(("studies",), {"numpy", "scipy"}), (("init", "a.yaml"), {"numpy"}), (("plan", "tr-3808"), set())],
)
def test_what_measures_nothing_loads_no_statistics(arguments: tuple[str, ...], also: set[str], tmp_path: Path) -> None:
    """The statistics modules take seconds to load, and a plan uses two functions of them."""
    code = (
        "import sys; from iotax.cli.app import app\n"
        f"app({list(arguments)!r}, standalone_mode=False); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout
    assert not {"scipy.stats", "scipy.optimize", "pandas", "jinja2", *also} & set(done.stderr.split())


def test_a_server_loads_no_statistics() -> None:
    code = "import sys, iotax.cli.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "iotax.analysis"} & set(done.stdout.split())


def test_a_terminal_with_few_letters_gets_others_that_mean_the_same(tiny: Path) -> None:
    environment = {**os.environ, "LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    tiny.write_text(tiny.read_text().replace("Does it run?", "Läuft es → in 5 µs?"))
    # One library prints the table, another one the rest.
    code = (
        "import sys, typer; from iotax.cli import app; app.spell_out(); "
        f"typer.echo({'→ 3 × 2 · ‹x› '!a} + chr(0xDCFF)); sys.argv = ['iotax', 'plan', {str(tiny)!r}]; app.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert "-> 3 x 2 | <x> ?" in done.stdout.decode("ascii")
    assert "tiny: Lauft es -> in 5 us?" in done.stdout.decode("ascii")


def test_json_in_place_of_the_text_and_beside_it(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    """Each document has exactly the keys that docs/reference/json.md lists."""
    engine.faults(run_2="die")
    promised = documented()
    for name, words in {
        "plan": ("plan", tiny),
        "check": ("check", tiny),
        "run": ("run", tiny),
        "show": ("show",),
        "size": ("size",),
        "studies": ("studies",),
    }.items():
        done = CliRunner().invoke(app, [*map(str, words), "--json"])
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout)
        assert set(document) == promised[name], name
        for key, each in document.items():
            if key in ("treatments", "trials", "sizes"):
                assert set().union(*each) == promised[key], key
    ran = json.loads(iotax("show", "--json").stdout)
    assert (ran["trials_planned"], ran["trials_left"]) == (8, 0)
    assert [each["status"] for each in ran["attempts_not_done"]] == ["failed"]
    local = next(each for each in ran["treatments"] if each["levels"] == {"protocol": "local", "outstanding": "8"})
    assert local["values"]["iops"]["value"] == pytest.approx(800_000)
    assert local["relative"]["iops"]["ratio"] == pytest.approx(1)
    beside = iotax("show", "--json", tmp_path / "beside.json")
    assert "8 of 8 trials measured" in beside.output
    assert json.loads((tmp_path / "beside.json").read_text()) == ran
    # A word that is not the name of a JSON file is an argument of the command.
    assert json.loads(iotax("plan", "--json", tiny).stdout)["study"] == "tiny"


def test_an_export_takes_its_format_from_its_name(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    del engine
    iotax("run", tiny, "--no-report")
    assert iotax("export", "-o", "t.json").exit_code == 0
    assert json.loads((tmp_path / "t.json").read_text())["study"]["name"] == "tiny"
    assert iotax("export", "-o", "t.csv").exit_code == 0
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 9
    for words in (("-o", "t.parquet", "-f", "csv"), ("-o", "t.txt"), ("--run", "last")):
        assert iotax("export", *words).exit_code == 2
    assert iotax("export", "-o", "t.txt", "-f", "csv").exit_code == 0
    pytest.importorskip("pyarrow")
    assert iotax("export", "-o", "t.parquet").exit_code == 0
    assert (tmp_path / "t.parquet").read_bytes().startswith(b"PAR1")


def test_an_export_has_validity_reads_apart_from_writes_every_run_and_the_series(
    engine: FakeEngine, tiny: Path, tmp_path: Path
) -> None:
    engine.faults(run_3="disturbed", run_4="die")
    intervals = [
        {"at_ns": at, "duration_ns": 5_000_000, "reads": 3, "writes": 1, "read_bytes": 9, "write_bytes": 3}
        for at in (0, 5_000_000)
    ]
    (engine.folder / "series.json").write_text(json.dumps(intervals))
    tiny.write_text(tiny.read_text() + "exclude: [little]\n")
    iotax("run", tiny, "--no-report")
    rows = list(csv.DictReader(io.StringIO(iotax("export").output)))
    assert [row["validity"] for row in rows[:4]] == ["note", "unknown", "doubtful", ""]
    assert [row["excluded"] for row in rows[:4]] == ["False", "False", "True", ""]
    assert "little: " in rows[2]["doubts"]
    for row in rows:
        if row["status"] == "done":
            reads, writes, both = (float(row[name]) for name in ("read_rate_iops", "write_rate_iops", "rate_iops"))
            assert reads + writes == pytest.approx(both)
            assert float(row["read_latency_p99_ns"]) > 0
    series = list(csv.DictReader(io.StringIO(iotax("export", "--series").output)))
    assert {(row["trial"], row["attempt"]) for row in series} == {
        (row["trial"], row["attempt"]) for row in rows if row["status"] == "done"
    }
    assert {"interval", "at_ns", "reads", "writes", "protocol"} <= set(series[0])
    tiny.write_text(tiny.read_text().replace("outstanding: [1, 8]", "block_size: [4KiB, 8KiB]"))
    iotax("run", tiny, "--no-report")
    both = list(csv.DictReader(io.StringIO(iotax("export", "--run", "all").output)))
    assert [row["run"] for row in both] == ["1"] * 9 + ["2"] * 8
    assert (both[0]["block_size"], both[0]["outstanding"]) == ("", "8")
    assert (both[-1]["block_size"] != "", both[-1]["outstanding"]) == (True, "")
    whole = json.loads(iotax("export", "--run", "all", "-f", "json").output)
    assert [each["run"]["id"] for each in whole["runs"]] == [1, 2]
    assert whole["runs"][0]["attempts"][2]["validity"]["excluded"] is True


def test_a_finished_study_is_not_run_again_without_a_word(engine: FakeEngine, tiny: Path) -> None:
    assert iotax("run", tiny).exit_code == 0
    page = Path("out/tiny.html")
    before, asked = page.read_bytes(), len(engine.documents("load"))
    done = iotax("run", tiny)
    assert done.exit_code == 0
    assert "Nothing was run: all 8 trials of this study were done already" in done.output.splitlines()[-1]
    assert "--again" in done.output.splitlines()[-1]
    assert "Validity: 8 of 8 trials measured" in done.output
    assert "Report: out/tiny.html" in done.output
    assert (page.read_bytes(), len(engine.documents("load"))) == (before, asked)
    told = json.loads(iotax("run", tiny, "--json").stdout)
    assert (told["trials_done_now"], told["trials_planned"], told["report"]) == (0, 8, "out/tiny.html")
    # As if the run was killed after its last trial: only the report is made.
    page.unlink()
    done = iotax("run", tiny)
    assert done.exit_code == 0, done.output
    assert "Report: out/tiny.html" in done.output
    assert len(engine.documents("load")) == asked
    again = page.read_bytes()
    done = iotax("run", tiny, "--again")
    assert done.output.splitlines()[-1] == "Report: out/tiny-run2.html"
    assert page.read_bytes() == again
    assert len(again) == pytest.approx(len(before), rel=0.01)


def test_a_refused_run_leaves_no_notebook_to_be_the_newest(engine: FakeEngine, tiny: Path) -> None:
    iotax("run", tiny, "--no-report")
    engine.faults(serve="port_taken")
    tiny.write_text(tiny.read_text().replace("name: tiny", "name: other"))
    assert iotax("run", tiny).exit_code == 4
    assert [path.name for path in Path("out").iterdir()] == ["tiny.iotax"]
    assert "out/tiny.iotax" in iotax("show").output
