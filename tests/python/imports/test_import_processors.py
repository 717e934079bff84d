"""CPU that sar, mpstat and esxtop recorded during runs, joined by time."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path

import pytest
from import_samples import fio_campaign

from iotax.imports.problems import Notes, Unreadable
from iotax.imports.processors import recorded

REAL = Path(__file__).parent / "real"
START = 1_700_000_000  # 2023-11-14 22:13:20 UTC


def sar(path: Path, idle: float, seconds: int = 60, *, without_load: float | None = None) -> Path:
    """`without_load` is the idle share in seconds in which `fio_campaign` runs nothing, if different."""
    quiet = idle if without_load is None else without_load
    busy_ends = {30, 40, 50} if without_load is not None else set()

    def idle_at(second: int) -> float:
        return idle if not busy_ends or second in busy_ends else quiet

    statistics = [
        {
            "timestamp": {"date": "2023-11-14", "time": f"22:13:{second:02}", "utc": 1, "interval": 1},
            "cpu-load": [
                {"cpu": "all", "user": 99 - idle_at(second), "iowait": 1.0, "steal": 0.0, "idle": idle_at(second)}
            ],
        }
        for second in range(seconds)
    ]
    host = {"nodename": "h1", "number-of-cpus": 4, "statistics": statistics}
    path.write_text(json.dumps({"sysstat": {"hosts": [host]}}))
    return path


def mpstat(path: Path) -> Path:
    statistics = [
        {"timestamp": f"22:13:{second:02}", "cpu-load": [{"cpu": "all", "usr": 50.0, "idle": 50.0}]}
        for second in range(10, 60)
    ]
    host = {"nodename": "h2", "number-of-cpus": 2, "date": "2023-11-14", "statistics": statistics}
    path.write_text(json.dumps({"sysstat": {"hosts": [host]}}))
    return path


def esxtop(path: Path, quote: str = '"') -> Path:
    names = ["(PDH-CSV 4.0) (UTC)(0)", r"\\esx1\Group Cpu(1:vm:()x)\% Used", r"\\esx1\Physical Cpu(0)\% Util Time",
             r"\\esx1\Physical Cpu(1)\% Util Time", r"\\esx1\Physical Cpu(_Total)\% Util Time"]  # fmt: skip
    rows = [names] + [[f"11/14/2023 22:13:{second:02}", "7.0", "30.0", "50.0", "40.0"] for second in range(0, 60, 5)]
    path.write_text("\n".join(",".join(f"{quote}{cell}{quote}" for cell in row) for row in rows) + "\n")
    return path


def test_each_monitor_gives_busy_time_over_a_run(tmp_path: Path) -> None:
    began, ended = (START + 10) * 10**9, (START + 20) * 10**9
    words = {
        "initiator": sar(tmp_path / "sar.json", idle=74.0),
        "target": mpstat(tmp_path / "mpstat.json"),
        "hypervisor": esxtop(tmp_path / "esxtop.csv"),
    }
    parts = {role: recorded(f"{role}={path}", Notes()).during(began, ended) for role, path in words.items()}
    busy = {role: part.busy_ns / 1e9 for role, part in parts.items() if part is not None}
    assert busy == pytest.approx({"initiator": 10.0, "target": 10.0, "hypervisor": 8.0})


@pytest.mark.parametrize("quote", ['"', ""])
def test_esxtop_is_read_with_and_without_quotes(tmp_path: Path, quote: str) -> None:
    found = recorded(f"hypervisor={esxtop(tmp_path / 'e.csv', quote)}", Notes())
    assert (found.host, found.processors, len(found.samples)) == ("esx1", 2, 11)


def test_a_run_that_nobody_recorded_has_no_cpu(tmp_path: Path) -> None:
    found = recorded(f"target={sar(tmp_path / 's.json', 50.0)}", Notes())
    assert found.during((START + 3600) * 10**9, (START + 3610) * 10**9) is None


def test_times_without_a_zone_are_told(tmp_path: Path) -> None:
    notes = Notes()
    recorded(f"target={mpstat(tmp_path / 'm.json')}", notes)
    assert "no zone: taken as UTC" in notes.said[0]


def test_times_of_day_may_have_twelve_hours(tmp_path: Path) -> None:
    path = mpstat(tmp_path / "m.json")
    path.write_text(path.read_text().replace('"22:', '"10:').replace('", "cpu-load"', ' PM", "cpu-load"'))
    found = recorded(f"target={path}", Notes())
    assert found.samples[0].end_unix_ns == (START - 20 + 10) * 10**9


def test_what_sysstat_12_6_wrote_is_read() -> None:
    """Two processors, busy nearly all the time."""
    for name, at in (("mpstat-12.6.1.json", 1_795_408_268), ("sadf-12.6.1.json", 1_795_408_271)):
        notes = Notes()
        found = recorded(f"initiator={REAL / name}", notes)
        assert (found.processors, len(found.samples)) == (2, 3)
        assert [sample.end_unix_ns for sample in found.samples] == [(at + second) * 10**9 for second in range(3)]
        assert bool(notes.said) == name.startswith("mpstat")
    # 100 % minus 0.99 % stolen, in the second sample.
    assert [round(sample.busy_share, 4) for sample in found.samples] == [1, 0.9901, 1]


def test_a_recording_past_midnight_goes_on(tmp_path: Path) -> None:
    """mpstat prints the date only once."""
    path = mpstat(tmp_path / "m.json")
    host = json.loads(path.read_text())["sysstat"]["hosts"][0]
    for each, text in zip(host["statistics"], ("23:59:58", "23:59:59", "00:00:00", "00:00:01"), strict=False):
        each["timestamp"] = text
    host["statistics"] = host["statistics"][:4]
    path.write_text(json.dumps({"sysstat": {"hosts": [host]}}))
    ends = [sample.end_unix_ns for sample in recorded(f"target={path}", Notes()).samples]
    assert [after - before for before, after in itertools.pairwise(ends)] == [10**9] * 3


def test_the_last_line_of_esxtop_that_was_killed_is_left_out(tmp_path: Path) -> None:
    path = esxtop(tmp_path / "e.csv")
    path.write_text(path.read_text()[:-25])
    assert len(recorded(f"hypervisor={path}", Notes()).samples) == 10


def test_esxtop_is_streamed_and_only_its_column_kept(tmp_path: Path) -> None:
    """Memory use grows with the rows, not with the columns: 2,000 columns take no more than 5."""
    held = {}
    for columns in (5, 2000):
        path = tmp_path / f"{columns}.csv"
        names = [
            "(PDH-CSV 4.0) (UTC)(0)",
            r"\\esx1\Physical Cpu(0)\% Util Time",
            r"\\esx1\Physical Cpu(_Total)\% Util Time",
        ]
        names += [rf"\\esx1\Group Cpu({at}:vm{at})\% Used" for at in range(columns)]
        with path.open("w") as file:
            file.write(",".join(f'"{name}"' for name in names) + "\n")
            for second in range(600):
                clock = f"11/14/2023 22:{13 + second // 60}:{second % 60:02}"
                file.write(",".join(f'"{cell}"' for cell in [clock, *["10.0"] * (columns + 2)]) + "\n")
        tracemalloc.start()
        found = recorded(f"hypervisor={path}", Notes())
        held[columns] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(found.samples) == 599
    assert held[2000] < held[5] + 4_000_000 < path.stat().st_size


@pytest.mark.parametrize("content", ["", "{", "{}", "a,b\n", '"(PDH-CSV 4.0)"\n', '{"sysstat": {"hosts": []}}'])
def test_what_no_monitor_wrote_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "m"
    path.write_text(content)
    with pytest.raises(Unreadable, match=str(path)):
        recorded(f"target={path}", Notes())


def test_an_imported_campaign_has_cpu_per_io_and_can_be_sized(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    words = (
        "--cpu",
        f"initiator={sar(tmp_path / 'i.json', 87.0, without_load=97.0)}",
        "--cpu",
        f"target={sar(tmp_path / 't.json', 93.0, without_load=98.0)}",
    )
    pattern = ("--name-pattern", "{protocol}-{bs}-r{replicate}.json")
    iotax("import", "fio", folder, *pattern, *words, "-n", "c.iotax")
    cells = json.loads(iotax("show", "c.iotax", "--json").stdout)["treatments"]
    values = {cell["levels"]["protocol"]: cell["values"] for cell in cells}
    # A tenth of four processors over a second, and 1,010 I/Os; the use between runs is subtracted.
    assert values["iscsi"]["cpu_initiator"]["value"] == pytest.approx(400_000 / 1010, rel=0.01)
    assert values["iscsi"]["cpu_target"]["value"] == pytest.approx(200_000 / 1010, rel=0.01)
    assert "nfs" in iotax("size", "c.iotax", "--iops", "1k").output.lower()
    iotax("report", "c.iotax")
    assert "minus its background without load" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize("word", ["x", "host=a.json", "target="])
def test_roles_are_named(tmp_path: Path, word: str, iotax) -> None:
    said = iotax("import", "fio", fio_campaign(tmp_path / "c"), "--cpu", word, code=2).output
    assert "write ROLE=FILE, where ROLE is initiator, target, hypervisor, guest" in said
