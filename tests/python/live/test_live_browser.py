"""The live page in a real browser while updates arrive."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.test_display import result
from iotax.design import plan
from iotax.labs.base import HostSample, Sample
from iotax.live import Board, LiveListener, LiveServer
from iotax.study.read import load_study
from iotax.trial import Attempt
from report import chromium
from report.test_browser import BEYOND
from waits import wait_for


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.webdriver.Chrome]:
    started = chromium.start(tmp_path_factory.mktemp("profile"))
    yield started
    started.quit()


def test_the_page_follows_a_run_at_every_width(browser: chromium.webdriver.Chrome, tiny: Path) -> None:
    study = load_study(str(tiny))[0]
    planned = plan(study)
    board = Board(study)
    told, server = LiveListener(board, Path("a.iotax")), LiveServer(board)
    server.start()
    told.planned(planned, list(planned.trials), resumed=False)
    for trial in planned.trials[:5]:
        told.started([trial], 1)
        ended = {"trial": trial, "number": 1, "started_unix_ns": 0, "ended_unix_ns": 1, "status": "done", "reason": ""}
        told.ended(Attempt.model_validate(ended | {"result": result(100_000 + 1_000 * trial.order)}))
    told.started([planned.trials[5]], 1)
    told.sample(Sample("run", 5_000_000, 123_456.0, 20_000, 45_600))
    browser.get(server.url)

    def text(selector: str) -> str:
        return browser.execute_script(f"return document.querySelector({selector!r}).innerText")

    wait_for(lambda: text("#state") == "Running", "the first news")
    assert "5 of 8 trials" in text("#progress") and "No verdict before the plan ends." in text("#verdict")
    assert text("#rates .big") == "123k IOPS" and "p99 45.6 µs" in text("#rates")
    for width_px, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
        chromium.set_screen(browser, width_px, scheme)
        assert browser.execute_script(BEYOND) == []
        assert browser.execute_script("return document.querySelectorAll('#panels circle').length") == 5
    hosts = tuple(
        HostSample(f"initiator-{number}.lab.example.org", 5_000.0 * number, 18_000, 45_600) for number in range(1, 25)
    )
    told.sample(Sample("run", 5_500_000, 1_500_000.0, None, None, hosts=hosts))
    wait_for(lambda: "24 hosts together" in text("#rates"), "the hosts' rates")
    assert "initiator-24.lab.example.org\t120k\t18.0 µs\t45.6 µs" in text("#hosts")
    for width_px in (1280, 390):
        chromium.set_screen(browser, width_px, "light")
        assert browser.execute_script(BEYOND) == []
    browser.execute_script("document.querySelector('[data-of=p99_ns]').click()")
    assert "20.0 µs" in browser.execute_script("return document.querySelector('#panels circle title').textContent")

    told.ended(Attempt.model_validate(ended | {"trial": planned.trials[5], "result": result(90_000)}))
    wait_for(lambda: "6 of 8 trials" in text("#progress"), "the next news")
    server.close()
    wait_for(lambda: "no longer serves" in text("#state"), "the end")
    messages = [json.loads(each["message"])["message"] for each in browser.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if url.startswith("http") and not url.startswith(server.url)} == set()
    assert [each["message"] for each in browser.get_log("browser") if each["level"] == "SEVERE"] == []
