"""The live view: what it shows of a run, what it leaves out, and that it blocks nothing."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from faked import FAKE, TINY, FakeEngine
from iotax.cli.display import PlainDisplay
from iotax.cli.run import measure
from iotax.design import plan
from iotax.labs.base import HostSample, Sample
from iotax.live import Board, Follower, LiveListener, LiveServer
from iotax.live.board import Seen
from iotax.live.metrics import exposition
from iotax.live.server import CONNECTIONS_MAX, CONNECTIONS_OF_ONE_MAX
from iotax.notebook import Notebook
from iotax.study import Study
from iotax.study.read import load_study
from iotax.trial import Attempt, CpuSecond, TrialResult
from waits import wait_for


@pytest.fixture
def study(tiny: Path) -> tuple[Study, str]:
    return load_study(str(tiny))


@pytest.fixture
def shown(study: tuple[Study, str]) -> Iterator[LiveServer]:
    server = LiveServer(Board(study[0]))
    server.start()
    yield server
    server.close()


@dataclass
class Ended:
    board: Board
    results: list[TrialResult]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A board with the events of a whole run."""
    folder = tmp_path_factory.mktemp("ended")
    study = folder / "tiny.yaml"
    study.write_text(TINY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IOTAX_ENGINE", str(FAKE))
        patch.setenv("FAKE_ENGINE", str(folder))
        loaded = load_study(str(study))
        board = Board(loaded[0])
        run(loaded, folder / "a.iotax", board)
    with Notebook(folder / "a.iotax") as notebook:
        return Ended(board, [attempt.result for attempt in notebook.attempts() if attempt.result])


def page_of(board: Board) -> str:
    server = LiveServer(board)
    server.close()
    return server.page


def get(server: LiveServer, path: str, **headers: str) -> str:
    request = urllib.request.Request(server.url.rstrip("/") + path, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def events(server: LiveServer, found: list[dict[str, Any]]) -> threading.Thread:
    """Reads events until the server ends."""

    def listen() -> None:
        with urllib.request.urlopen(f"{server.url}events", timeout=60) as answer:
            found.extend(json.loads(line[6:]) for line in answer if line.startswith(b"data: "))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    return thread


def run(study: tuple[Study, str], path: Path, board: Board) -> None:
    display = PlainDisplay(Console(file=io.StringIO()))
    measure(*study, path, display, LiveListener(board, path))


def metrics(text: str) -> dict[str, float]:
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if not line.startswith("#")
    }


def test_a_run_is_shown_from_its_plan_to_its_end(
    study: tuple[Study, str], tmp_path: Path, engine: FakeEngine, shown: LiveServer
) -> None:
    engine.faults(run_3="die")
    found: list[dict[str, Any]] = []
    listening = events(shown, found)
    wait_for(lambda: found, "the first event")
    run(study, tmp_path / "a.iotax", shown.board)
    counted = metrics(get(shown, "/metrics"))
    shown.close()
    listening.join(60)
    assert not listening.is_alive()
    points = [point for news in found for point in news["points"]]
    with Notebook(tmp_path / "a.iotax") as notebook:
        done = {a.trial.id: a for a in notebook.attempts() if a.status == "done"}
    assert {each["trial"]: each["iops"] for each in points} == {
        name: attempt.result.rate_iops for name, attempt in done.items() if attempt.result
    }
    assert len(points) == 8
    first, last = found[0], found[-1]
    assert (first["first"], first["state"], first["done"]) == (True, "starting", 0)
    assert (last["last"], last["state"], last["done"], last["total"]) == (True, "ended", 8, 8)
    assert any("attempt 1 failed" in warning for warning in last["warnings"])
    assert counted['iotax_attempts_total{study="tiny",status="done"}'] == 8
    assert counted['iotax_attempts_total{study="tiny",status="failed"}'] == 1
    results = [attempt.result for attempt in done.values() if attempt.result]
    reads = sum(result.read.ios for result in results if result.endpoint.startswith("iscsi"))
    assert counted['iotax_ios_total{study="tiny",protocol="iscsi",host="",direction="read"}'] == reads


def test_nothing_that_is_told_compares(ended: Ended) -> None:
    """No verdict, ratio or interval before the plan ends, or after; these belong to the report."""
    news, _ = ended.board.news(Seen())
    words = json.dumps({**news, **ended.board.study()})
    assert len(news["points"]) == 8
    for word in ("ratio", "equivalent", "significant", "better", "worse", "baseline", "_low", "_high"):
        assert word not in words
    assert "No verdict before the plan ends." in page_of(ended.board)


def test_the_latency_histogram_counts_every_io_once(ended: Ended) -> None:
    counted = metrics(exposition(ended.board.metrics()))
    iscsi = [each for each in ended.results if each.endpoint.startswith("iscsi")]
    of = 'study="tiny",protocol="iscsi",host=""'
    buckets = [value for name, value in counted.items() if name.startswith(f"iotax_latency_seconds_bucket{{{of},le=")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == counted[f"iotax_latency_seconds_count{{{of}}}"] == sum(result.ios for result in iscsi) > 0
    told = counted[f'iotax_latency_seconds_bucket{{{of},le="2e-05"}}']
    assert told == sum(n for r in iscsi for value, n in r.latency_counts().items() if value <= 20_000)
    spent_s = sum(result.read.latency_sum_ns + result.write.latency_sum_ns for result in iscsi) / 1e9
    assert counted[f"iotax_latency_seconds_sum{{{of}}}"] == pytest.approx(spent_s)


def test_samples_of_the_trial_under_way_are_shown_and_gone_after_it(study: tuple[Study, str]) -> None:
    board = Board(study[0])
    planned = plan(study[0])
    listener = LiveListener(board, Path("x"))
    listener.planned(planned, list(planned.trials), resumed=False)
    listener.started([planned.trials[0]], 1)
    listener.sample(Sample("run", 500_000_000, 12_345.6, 20_000, 45_600))
    news, seen = board.news(Seen())
    assert [(each["iops"], each["p99_ns"]) for each in news["rates"]] == [(12_345.6, 45_600)]
    assert [each["iops"] for each in news["samples"]] == [12_346]
    assert "iotax_iops" in {family.name for family in board.metrics()}
    ended = {"trial": planned.trials[0], "number": 1, "started_unix_ns": 0, "ended_unix_ns": 1}
    listener.ended(Attempt.model_validate({**ended, "status": "failed", "reason": "it broke"}))
    news, _ = board.news(seen)
    assert (news["rates"], news["samples"]) == ([], [])
    assert "iotax_iops" not in {family.name for family in board.metrics()}


def test_each_host_of_the_trial_under_way_has_its_rate_and_latency(study: tuple[Study, str]) -> None:
    board = Board(study[0])
    trial = plan(study[0]).trials[0]
    board.start([trial], 1)
    hosts = (HostSample("h1", 60_000.0, 18_000, 40_000), HostSample("h2", 40_000.0, 25_000, None))
    board.sample(Sample("run", 500_000_000, 100_000.0, None, None, hosts=hosts))
    news, _ = board.news(Seen())
    told = [(each["host"], each["iops"], each["p99_ns"]) for each in news["rates"][0]["hosts"]]
    assert told == [("h1", 60_000.0, 40_000), ("h2", 40_000.0, None)]
    assert (news["rates"][0]["iops"], news["rates"][0]["p99_ns"]) == (100_000.0, None)
    counted = metrics(exposition(board.metrics()))
    of = {
        host: f'study="tiny",protocol="{trial.treatment["protocol"]}",host="{host}",trial="{trial.id}"'
        for host in ("", "h1", "h2")
    }
    assert [counted[f"iotax_iops{{{of[host]}}}"] for host in ("", "h1", "h2")] == [100_000, 60_000, 40_000]
    assert counted[f'iotax_latency_quantile_seconds{{{of["h1"]},quantile="0.99"}}'] == 40e-6
    quantiles = [name for name in counted if name.startswith("iotax_latency_quantile_seconds")]
    assert len(quantiles) == 3, "what nobody knows is left out"


def test_a_notebook_that_others_write_is_followed_and_a_resumed_run_shows_what_was_there(
    study: tuple[Study, str], tmp_path: Path, engine: FakeEngine
) -> None:
    path = tmp_path / "a.iotax"
    engine.faults(run_5="die", run_6="die")
    run(study, path, Board(study[0]))
    followed, resumed = Board(study[0]), Board(study[0])
    follower = Follower(followed, path, 1)
    follower.start()
    wait_for(lambda: followed.news(Seen())[0]["state"] == "stopped", "the rest of the plan to be told")
    news, _ = followed.news(Seen())
    assert (news["done"], news["total"], len(news["warnings"])) == (7, 8, 2)
    assert "Trials left: 1." in news["words"]
    engine.faults()
    run(study, path, resumed)
    wait_for(lambda: followed.news(Seen())[0]["state"] == "ended", "the end of the plan")
    follower.stop()
    for board in (followed, resumed):
        news, _ = board.news(Seen())
        assert (news["done"], news["total"], len(news["points"])) == (8, 8, 8)


def test_more_connections_than_the_limit_are_told_so_and_places_come_free(shown: LiveServer) -> None:
    host, port = shown._http.server_address[:2]

    def come(source: str) -> socket.socket:
        return socket.create_connection((str(host), int(port)), timeout=60, source_address=(source, 0))

    held = [come("127.0.0.1") for _ in range(CONNECTIONS_OF_ONE_MAX)]
    with come("127.0.0.1") as one_more:
        assert one_more.recv(100).startswith(b"HTTP/1.0 503")
    # Other addresses are admitted until all places are taken.
    held += [come("127.0.0.2") for _ in range(CONNECTIONS_MAX - CONNECTIONS_OF_ONE_MAX)]
    wait_for(lambda: shown._http._taken.total() == CONNECTIONS_MAX, "all to be there")
    with come("127.0.0.3") as one_more:
        assert one_more.recv(100).startswith(b"HTTP/1.0 503")
    for each in held:
        each.close()
    wait_for(lambda: _answers(shown), "a place")


def test_a_request_that_comes_a_byte_at_a_time_is_given_up(shown: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotax.live.server.PATIENCE_S", 0.3)
    host, port = shown._http.server_address[:2]
    with socket.create_connection((str(host), int(port)), timeout=30) as slow:

        def given_up() -> bool:
            try:
                slow.sendall(b"G")
            except OSError:
                return True
            return False

        wait_for(given_up, "the connection to be closed")


def _answers(server: LiveServer) -> bool:
    try:
        return "iotax_trials_planned" in get(server, "/metrics")
    except (urllib.error.HTTPError, ConnectionError):
        return False


def test_the_end_waits_for_no_client(study: tuple[Study, str]) -> None:
    """Neither for a client that sends no request, nor for one that does not read."""
    server = LiveServer(Board(study[0]))
    server.start()
    host, port = server._http.server_address[:2]
    silent = socket.create_connection((str(host), int(port)))
    deaf = socket.create_connection((str(host), int(port)))
    deaf.sendall(b"GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n")
    wait_for(lambda: server._http.listening, "the listener")
    began_s = time.monotonic()
    server.close()
    assert time.monotonic() - began_s < 30
    silent.close()
    deaf.close()


def test_only_the_address_that_was_named_is_answered(shown: LiveServer) -> None:
    """A page on another site whose name resolves to this address ("DNS rebinding") must read nothing."""
    assert shown.url.startswith("http://127.0.0.1:")
    with pytest.raises(urllib.error.HTTPError, match="421"):
        get(shown, "/metrics", Host="evil.example")
    assert "iotax_trials_planned" in get(shown, "/metrics", Host="localhost:80")


def test_the_page_asks_nothing_of_elsewhere(shown: LiveServer) -> None:
    page = get(shown, "/")
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "https://" not in page
    with urllib.request.urlopen(shown.url, timeout=60) as answer:
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(shown, "/../../etc/passwd")


def test_names_cannot_break_out_of_the_page(tiny: Path) -> None:
    tiny.write_text(tiny.read_text().replace("Does it run?", "'</script><img src=x onerror=1> \"<b>'"))
    page = page_of(Board(load_study(str(tiny))[0]))
    assert "<img" not in page and "<b>'" not in page and page.count("</script>") == 1


@pytest.mark.parametrize("place", ["quick:", "70000", "nowhere.invalid:80"])
def test_a_place_that_cannot_be_served_ends_before_the_first_trial(
    place: str, tiny: Path, iotax: Any, engine: FakeEngine
) -> None:
    result = iotax("run", tiny, f"--live={place}", code=2)
    assert f"--live {place}" in result.output
    assert not engine.documents("load")


def test_the_port_may_follow_the_option_or_not(tiny: Path, iotax: Any, engine: FakeEngine) -> None:
    del engine
    tiny.write_text(tiny.read_text().replace("[1, 8]", "[1]").replace("replicates: 2", "replicates: 1"))
    assert "Live: http://127.0.0.1:" in iotax("run", "--live", "--no-report", tiny).output
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "Address already in use" in iotax("run", "--again", "--live", port, tiny, code=2).output


def test_a_defect_of_ours_is_told_once_and_answered(
    shown: LiveServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Board) -> None:
        raise TypeError("a surprise")

    monkeypatch.setattr(Board, "metrics", broken)
    for _ in range(3):
        with pytest.raises(urllib.error.HTTPError, match="500") as failed:
            get(shown, "/metrics")
        assert b"a defect of iotax" in failed.value.read()
    wait_for(lambda: caplog.records, "the word about it")
    (record,) = [each for each in caplog.records if each.name == "iotax.live"]
    assert "a surprise" in str(record.exc_info)


def test_a_client_that_goes_away_is_no_news(shown: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    host, port = shown.url.removeprefix("http://").rstrip("/").rsplit(":", 1)
    for words in (b"GET /", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x00\xff\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(words)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    assert "iotax" in get(shown, "/")
    assert [each for each in caplog.records if each.name == "iotax.live"] == []


def test_processors_that_are_told_at_the_end_of_a_run_are_shown_at_the_times_at_which_they_were_busy(
    study: tuple[Study, str], ended: Ended
) -> None:
    """Sessions of rounds and ESXi hosts report them only at the end."""
    board, [trial, *_] = Board(study[0]), plan(study[0]).trials
    seconds = [
        CpuSecond(at_ns=at * 10**9, duration_ns=10**9, busy_ns={"initiator": (at + 1) * 10**8, "machine": 10**9})
        for at in range(3)
    ]
    result = ended.results[0].model_copy(update={"cpu_series": seconds})
    attempt = Attempt(
        trial=trial, number=1, status="done", reason="", started_unix_ns=0, ended_unix_ns=time.time_ns(), result=result
    )
    board.start([trial], 1)
    board.end_attempt(attempt)
    news, seen = board.news(Seen())
    assert [each["cores"] for each in news["samples"]] == [
        {"initiator": pytest.approx(share), "machine": pytest.approx(1)} for share in (0.1, 0.2, 0.3)
    ]
    assert [each["iops"] for each in news["samples"]] == [None] * 3
    first, second, third = (each["at_s"] for each in news["samples"])
    assert (second - first, third - second) == (pytest.approx(1, abs=0.02), pytest.approx(1, abs=0.02))
    # CPU that was reported during the run is not added again. What is long over is shown only among the runs.
    board.start([trial], 2)
    board.sample(Sample("run", 1, 10.0, 1, 2, cores={"initiator": 0.5, "machine": 1}))
    board.end_attempt(attempt)
    news, seen = board.news(seen)
    assert [each["iops"] for each in news["samples"]] == [10]
    # A role without reports during the run, such as that of an ESXi host, is still added.
    board.start([trial], 2)
    board.sample(Sample("run", 1, 10.0, 1, 2, cores={"initiator": 0.5}))
    board.end_attempt(attempt)
    news, seen = board.news(seen)
    assert [each["cores"] for each in news["samples"]] == [{"initiator": 0.5}, *[{"machine": pytest.approx(1)}] * 3]
    board.start([trial], 3)
    board.end_attempt(attempt.model_copy(update={"ended_unix_ns": time.time_ns() - 400 * 10**9}))
    assert board.news(seen)[0]["samples"] == []
