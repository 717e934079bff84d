"""The site's gallery: a page that leads to the newest reports, and says how to make them where there are none."""

from __future__ import annotations

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
    folder = tmp_path / "made" / "0123456789ab"
    folder.mkdir(parents=True)
    write_notebook(folder / "patterns.iotax", Simulation().data(study()))
    for kind in ("html", "png"):
        (folder / f"patterns.{kind}").write_text(kind)
    gallery.publish(tmp_path / "site")
    page = (tmp_path / "site" / "README.md").read_text()
    assert "runs of commit 0123456789ab" in page
    assert "[patterns](patterns.html)" in page
    assert "kernel-exact" not in page
    assert sorted(each.name for each in (tmp_path / "site").iterdir()) == ["README.md", "patterns.html", "patterns.png"]
