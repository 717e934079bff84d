"""The report: one self-contained HTML file made from a notebook, and its charts as files.

`write(notebook, path, charts_dir=None, run=None, pdf=None) -> Path`.
"""

from pathlib import Path

from iotax import outputs
from iotax.analysis import summarise
from iotax.collected import study_data
from iotax.notebook import Notebook
from iotax.report.page import Page
from iotax.report.pdf import PdfError, print_page
from iotax.report.renderer import NoRendererError, to_png

__all__ = ["NoRendererError", "PdfError", "write"]


def write(
    notebook: Notebook, path: Path, charts_dir: Path | None = None, run: int | None = None, pdf: Path | None = None
) -> Path:
    """Writes the report to `path`, each chart as SVG and PNG into `charts_dir`, the printed report to `pdf`.

    Earlier files are replaced whole or not at all. Raises PdfError if no PDF can be made, NoRendererError where no
    charts can; what comes before them is written.
    Raises OutputRefused if a file would replace the notebook or a study, before anything is written.
    """
    outputs.judge(path, notebook.path)
    if pdf is not None:
        outputs.judge(pdf, notebook.path, path)
    page = Page(summarise(study_data(notebook, run)), notebook.path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    html = page.html()
    outputs.write(path, html, notebook.path)
    if pdf is not None:
        pdf.parent.mkdir(parents=True, exist_ok=True)
        outputs.write(pdf, print_page(html), notebook.path, path)
    if charts_dir is not None:
        charts_dir.mkdir(parents=True, exist_ok=True)
        for drawing in page.drawings:
            svg = drawing.file()
            outputs.write(charts_dir / f"{drawing.name}.svg", f"{outputs.NOTE_OF_ORIGIN}\n{svg}", notebook.path)
            outputs.write(charts_dir / f"{drawing.name}.png", to_png(svg))
    return path
