"""The site's gallery: a page with links to the newest reports; without reports, it says how to make them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import gallery
from iotax import studies
from report.factory import Simulation, study, write_notebook


def test_every_study_of_the_gallery_is_built_in() -> None:
    assert all((Path(studies.__path__[0]) / f"{name}.yaml").is_file() for name in gallery.STUDIES)


def test_the_page_leads_to_the_newest_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "MADE", tmp_path / "made")
    gallery.publish(tmp_path / "none")
    assert "make gallery" in (tmp_path / "none" / "README.md").read_text()
    for name, commit, written_s in (
        ("patterns", "0123456789ab", 2),
        ("patterns", "older", 1),
        ("kernel-exact", "old", 1),
    ):
        folder = tmp_path / "made" / commit
        folder.mkdir(parents=True)
        write_notebook(folder / f"{name}.iotax", Simulation().data(study()))
        for kind in ("html", "png"):
            (folder / f"{name}.{kind}").write_text(commit)
            os.utime(folder / f"{name}.{kind}", (written_s, written_s))
    gallery.publish(tmp_path / "site")
    page = (tmp_path / "site" / "README.md").read_text()
    assert "commit 0123456789ab" in page and "commit older" not in page
    assert "[patterns](patterns.html)" in page
    assert (tmp_path / "site" / "patterns.html").read_text() == "0123456789ab"
    assert "commit old." in page, "a study that was not run again keeps its report"
    assert "tr-3808-full" not in page
