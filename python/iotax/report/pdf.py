"""The report on paper: the same page, printed by a browser of the Chromium family that is installed.

A browser and not a library: it sets the page as readers see it, with vector charts, and iotax need not carry a second
layout or a typesetter of 30 MB. Without one, any browser's own "print" gives the same pages from the HTML file.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from iotax import outputs

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_PATIENCE_S = 300


class PdfError(Exception):
    """No PDF could be made; the message says what to do."""


def print_page(html: str) -> bytes:
    """The page as PDF, with folded parts open except for long tables. Raises PdfError."""
    browser = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if browser is None:
        raise PdfError(
            "a PDF is printed by Chromium or Chrome, and none is installed (Debian: `apt install chromium`); "
            "the HTML report prints as well from any other browser"
        )
    with tempfile.TemporaryDirectory(prefix="iotax-pdf-") as name:
        folder = Path(name)
        page, printed = folder / "report.html", folder / "report.pdf"
        outputs.write(page, html.replace("<details>", "<details open>"))
        command = [
            browser,
            "--headless=new",
            # The browser's sandbox refuses root; the page is our own and loads nothing.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-pdf-header-footer",
            "--generate-pdf-document-outline",
            f"--user-data-dir={folder / 'profile'}",
            f"--print-to-pdf={printed}",
            page.as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PdfError(f"{browser} did not print the report: {error}") from None
        if not printed.is_file():
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise PdfError(f"{browser} did not print the report: {last}")
        return printed.read_bytes() + outputs.PDF_MARK
