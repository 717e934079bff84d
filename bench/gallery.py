"""`make gallery`: complete reports for the site, from runs of the current commit, in out/gallery/COMMIT.

The published studies in simulation, and the kernel's protocols in virtual machines: half an hour, needs QEMU. An
interrupted run is resumed. `make site` shows the reports that exist.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from bench.pictures import PAGE_PX, ROOT, commit, measured, photograph
from iotax.notebook import Notebook
from iotax.report import write

MADE = ROOT / "out" / "gallery"
STUDIES = (
    "tr-3808-full",
    "nfs-vs-fc-cpu-full",
    "ip-vs-fc-full",
    "fcp-vs-fc-nvme-full",
    "patterns",
    "kernel-exact",
    "kernel-releases",
)
"""The five published studies, in full where they are simulated; then studies that no other tool has."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="all of the gallery by default")
    parser.add_argument(
        "--site", type=Path, metavar="DIR", help="run nothing; put the newest reports and their page there"
    )
    given = parser.parse_args()
    if unknown := sorted(set(given.studies) - set(STUDIES)):
        parser.error(f"not in the gallery: {', '.join(unknown)}; it has {', '.join(STUDIES)}")
    if given.site:
        publish(given.site)
    else:
        make(given.studies or STUDIES)


def make(studies: Iterable[str]) -> None:
    folder = MADE / commit()
    folder.mkdir(parents=True, exist_ok=True)
    for study in studies:
        with Notebook(measured(study, folder)) as notebook:
            page = write(notebook, (folder / f"{study}.html").resolve())
        photograph(page, folder / f"{study}.png", PAGE_PX, dark=False)
        print(page.relative_to(ROOT), file=sys.stderr)


def publish(site: Path) -> None:
    """Writes a page with each report's question, date and picture, and copies the reports next to it."""
    site.mkdir(parents=True, exist_ok=True)
    lines = ["# Gallery of reports", ""]
    if made := {study: folder for study in STUDIES if (folder := newest(study)) is not None}:
        lines += ["Complete reports as iotax writes them. Each is one file that opens offline.", ""]
        for study, folder in made.items():
            lines += shown(study, folder, site)
    else:
        lines += ["This copy of the site has no reports: `make gallery`, then `make site`."]
    (site / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def newest(study: str) -> Path | None:
    """The folder of the study's newest report, of any commit. A report that is still being made has no picture."""
    made = [page for page in MADE.glob(f"*/{study}.html") if page.with_suffix(".png").is_file()]
    return max(made, key=lambda page: page.stat().st_mtime).parent if made else None


def shown(study: str, folder: Path, site: Path) -> list[str]:
    with Notebook(folder / f"{study}.iotax") as notebook:
        question = " ".join(notebook.study().question.split())
        began = datetime.fromtimestamp(notebook.run().started_unix_ns / 1e9, UTC)
    for kind in ("html", "png"):
        shutil.copy(folder / f"{study}.{kind}", site)
    return [
        f"## [{study}]({study}.html)",
        "",
        f"{question} `iotax run {study}`, {began:%-d %B %Y}, commit {folder.name}.",
        "",
        f"[![The first page of the report]({study}.png)]({study}.html)",
        "",
    ]


if __name__ == "__main__":
    main()
