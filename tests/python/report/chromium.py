"""Chromium for tests of the page; what it would request from the machine and the network is turned off."""

import os
import warnings
from pathlib import Path

import pytest

from needed import program

webdriver = pytest.importorskip("selenium.webdriver")

QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def start(profile: Path, environment: dict[str, str] | None = None) -> "webdriver.Chrome":
    """Starts a browser that keeps its log. `environment` is added to the test's own."""
    driver = program("chromedriver", "chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium")
    for argument in (*QUIET, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        service = webdriver.ChromeService(driver, env={**os.environ, **(environment or {})})
        return webdriver.Chrome(options=options, service=service)


def set_screen(browser: "webdriver.Chrome", width_px: int, scheme: str = "light") -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": width_px < 700},
    )
