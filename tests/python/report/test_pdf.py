"""The printed report: an installed browser makes a PDF that can be read back, or iotax refuses with the reason."""

import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.outputs import PDF_MARK, OutputRefused, judge
from iotax.report.pdf import PROGRAMS
from needed import program
from report.factory import Simulation, study, write_notebook

A4_PT = 842.0


@pytest.fixture
def notebook(tmp_path) -> Path:
    return write_notebook(tmp_path / "quick.iotax", Simulation().data(study()))


def test_the_report_is_printed_with_page_numbers_and_vector_charts(notebook, tmp_path):
    if not any(map(shutil.which, PROGRAMS)):
        pytest.skip("no browser of the Chromium family is installed")
    pdf = tmp_path / "paper" / "quick.pdf"
    done = CliRunner().invoke(app, ["report", str(notebook), "--pdf", str(pdf)])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [str(notebook.with_suffix(".html")), str(pdf)]
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF-")
    pages = len(re.findall(rb"/Type\s*/Page\b", content))
    assert pages >= 5
    assert b"/Subtype /Image" not in content  # charts are drawings, not images
    drawn = b"".join(_streams(content))
    assert drawn.count(b" c\n") + drawn.count(b" l\n") > 500  # curves and lines of the charts
    # iotax replaces its own report, but not another program's file.
    judge(pdf)
    pdf.write_bytes(content.removesuffix(PDF_MARK))
    with pytest.raises(OutputRefused, match="iotax has not written it"):
        judge(pdf)


def test_no_page_but_the_last_is_half_empty(notebook, tmp_path):
    program("chromium")
    program("pdftotext", "poppler-utils")
    pdf = tmp_path / "quick.pdf"
    assert CliRunner().invoke(app, ["report", str(notebook), "--pdf", str(pdf)]).exit_code == 0
    words = subprocess.run(["pdftotext", "-bbox", pdf, "-"], check=True, capture_output=True, text=True).stdout
    pages = [re.findall(r'yMax="([\d.]+)">(?!iotax<|\d+<|/<)', page) for page in words.split("<page ")[1:]]
    assert len(pages) > 8
    filled = [max(map(float, lows)) / A4_PT for lows in pages]
    assert [place for place, share in enumerate(filled[:-1], start=1) if share < 0.6] == []


def test_without_a_browser_the_reason_is_said_and_the_page_is_there(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(app, ["report", str(notebook), "--pdf", str(tmp_path / "quick.pdf")])
    assert done.exit_code == 2
    assert "apt install chromium" in done.output
    assert notebook.with_suffix(".html").exists()
    assert not (tmp_path / "quick.pdf").exists()


def _streams(content: bytes) -> list[bytes]:
    found = []
    for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL):
        try:
            found.append(zlib.decompress(packed))
        except zlib.error:
            continue
    return found
