"""The report's text: what it contains, what it leaves out, and how long it takes."""

import base64
import hashlib
import html
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from unittest import mock

import pytest

from iotax import report
from iotax.analysis import Estimate, StudyData, summarise
from iotax.notebook import Notebook
from iotax.report.sections.forest import WIDTH, forest
from iotax.wording import answer, brief
from report.factory import Simulation, study, write_notebook

SECTIONS = [
    "verdict",
    "figures",
    "tax",
    "load",
    "effects",
    "percentiles",
    "cpu",
    "sizing",
    "validity",
    "design",
    "environment",
    "method",
    "checklist",
    "again",
]


def written(folder, data: StudyData, charts: bool = False) -> str:
    notebook = write_notebook(folder / "study.iotax", data)
    with Notebook(notebook) as opened:
        path = report.write(opened, folder / "out" / "report.html", folder / "charts" if charts else None)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    return folder, written(folder, Simulation(failed=["iscsi/8/r2"]).data(study()), charts=True)


def test_every_section_is_there_once(quick):
    assert re.findall(r'<section id="(\w+)"', quick[1]) == SECTIONS
    anchors = re.findall(r'<a href="#(\w+)"', quick[1])
    assert set(anchors) <= set(SECTIONS)


def test_nothing_is_loaded_from_anywhere(quick):
    text = quick[1]
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#|data:,)""", text)
    assert not re.search(r"@import|url\((?!#|data:)", text)
    assert "default-src 'none'" in text


def test_where_nothing_draws_charts_their_words_stand_in_their_place(tmp_path, monkeypatch):
    """vl-convert has no build for systems with musl."""
    write_notebook(path := tmp_path / "q.iotax", Simulation().data(study()))
    with Notebook(path) as notebook:
        drawn = report.write(notebook, tmp_path / "drawn.html").read_text()
        monkeypatch.setattr(report.renderer, "vl_convert", None)
        page = report.write(notebook, tmp_path / "words.html").read_text()
        with pytest.raises(report.NoRendererError, match="which is not installed here"):
            report.write(notebook, tmp_path / "again.html", tmp_path / "charts")
    assert "No charts." in page and "No charts." not in drawn
    sections = re.compile(r'<section id="(\w+)"')
    assert sections.findall(page) == sections.findall(drawn)
    assert '<svg role="img"' not in page
    labels = [html.unescape(each) for each in re.findall(r'role="img" aria-label="([^"]+)"', drawn)]
    text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page)).replace("\u00a0", " "))
    assert labels and all(re.sub(r"\s+", " ", each.partition(". ")[2]) in text for each in labels)
    assert (tmp_path / "again.html").exists()


def test_each_verdict_stands_in_a_row_with_its_interval_drawn_beside_it(quick):
    summary, page = summarise(Simulation(failed=["iscsi/8/r2"]).data(study())), quick[1]
    found = forest(summary)
    rows = [*found.rows, *found.folded]
    assert len(rows) == len(brief.lines(summary)) == 6
    for row in rows:
        assert 0 <= row.low <= min(row.points) <= max(row.points) <= row.high <= WIDTH
        for point, ratio in zip(row.points, row.line.ratios, strict=True):
            assert (point > found.centre) == (ratio.value > 1)
    assert found.band[0] < found.centre < found.band[1]
    assert found.lead in html.unescape(page).replace("\u00a0", " ")
    table = page.partition('<table class="forest"')[2].partition("</table>")[0]
    assert table.count("<tr>") == 1 + len(found.rows)
    assert table.count('class="reach"') == len(found.rows)
    assert page.index('class="forest"') < page.index("<summary>The verdict in sentences</summary>")


def test_what_lies_beyond_the_scale_of_verdicts_is_marked():
    summary = summarise(Simulation().data(study()))
    far = replace(brief.lines(summary)[0], ratios=(Estimate(100.0, 50.0, 200.0),))
    with mock.patch("iotax.report.sections.forest.brief.lines", return_value=[far]):
        (row,) = forest(summary).rows
    assert row.beyond == "right" and row.high <= WIDTH


def test_ids_are_unique(quick):
    ids = re.findall(r'\sid="([^"]+)"', quick[1])
    assert len(ids) == len(set(ids))


def test_verdict_comes_in_words_before_any_table(quick):
    text = quick[1]
    assert text.index(" IOPS than iSCSI under every load: from ") < text.index("<table")


def test_failed_attempt_is_listed_with_its_reason_and_what_became_of_it(quick):
    text = quick[1]
    assert "lost: the target closed the connection" in text
    assert "measured by attempt 2" in text


def test_charts_are_labelled_and_coloured_for_both_schemes(quick):
    text = quick[1]
    pictures = re.findall(r"<svg role=\"img\" aria-label=\"([^\"]{20,})\"", text)
    assert len(pictures) >= 15
    assert "var(--green)" in text
    assert "#0f1e" not in text
    assert "prefers-color-scheme:dark" in text


def test_rows_of_the_first_charts_name_their_protocol(quick):
    for name in ("ratio-iops", "ratio-latency"):
        root = ET.fromstring((quick[0] / "charts" / f"{name}.svg").read_text(encoding="utf-8"))
        words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
        conditions = ["outstanding 1", "outstanding 8", "outstanding 32"]
        labels = [word for word in words if word in ("NFSv3", "NVMe/TCP", *conditions)]
        assert labels == ["NFSv3", *conditions, "NVMe/TCP", *conditions]


def test_chart_files_are_well_formed_and_have_a_title(quick):
    files = sorted((quick[0] / "charts").glob("*.svg"))
    assert {f.stem for f in files} >= {"iops-over-outstanding", "ratio-iops", "throughput-against-latency"}
    for file in files:
        root = ET.fromstring(file.read_text(encoding="utf-8"))
        assert root.find("{http://www.w3.org/2000/svg}title").text
        assert "var(--" not in file.read_text(encoding="utf-8")
        assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_secrets_do_not_leave(tmp_path):
    data = Simulation(failed=["iscsi/1/r1"]).data(study())
    leaky = [
        a.model_copy(
            update={
                "reason": "login to iscsi://fred:hunter2@host/iqn.x/0 was refused",
                "log": "chap_secret=hunter2 used\npassword: hunter2",
                "connected": None,
            }
        )
        if a.status == "failed"
        else a.model_copy(update={"connected": a.connected.model_copy(update={"found": {"CHAP_secret": "hunter2"}})})
        for a in data.attempts
    ]
    environment = {
        **data.environment,
        "api_token": "hunter2",
        "command_line": ["x", "run", "--password=hunter2", "quick"],
    }
    text = written(tmp_path, StudyData(data.study, leaky, data.planned, data.backgrounds, environment=environment))
    assert "hunter2" not in text
    assert "was refused" in text
    assert "iotax run" in text


def test_words_of_a_study_are_text_not_markup(tmp_path):
    text = written(tmp_path, Simulation().data(study(question="Is <script>alert(1)</script> & more safe?")))
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more safe?" in text


@pytest.mark.parametrize("attempts", [0, 1, 15])
def test_unfinished_study_still_gives_a_report(tmp_path, attempts):
    data = Simulation().data(study())
    part = StudyData(
        data.study, list(data.attempts)[:attempts], data.planned, data.backgrounds, environment=data.environment
    )
    text = written(tmp_path, part)
    assert f"{attempts} of 36 planned trials were measured" in text


def test_study_without_protocol_or_numeric_factor(tmp_path):
    of = study(
        factors={"data_digest": [False, True]}, connection={"protocol": "iscsi"}, baseline={"data_digest": False}
    )
    text = written(tmp_path, Simulation().data(of))
    assert "Every run" in text
    assert 'id="tax"' not in text


@pytest.mark.slow
def test_several_factors_give_a_panel_for_each_combination(tmp_path):
    factors = {"protocol": ["iscsi", "nvme-tcp"], "block_size": ["4KiB", "64KiB"], "outstanding": [1, 8, 32]}
    of = study(factors=factors)
    text = written(tmp_path, Simulation().data(of))
    assert "Throughput (IOPS), block size 64KiB" in text
    assert text.count('class="panel"') > 20


def test_labels_with_endpoints_keep_their_protocols_colour(tmp_path):
    factors = {
        "protocol": {
            "old array": "iscsi://10.0.0.1/iqn.2020-01.com.example:a/0",
            "new array": "nvme-tcp://10.0.0.2/nqn.2020-01.com.example:b?ns=1",
        },
        "outstanding": [1, 8],
    }
    text = written(tmp_path, Simulation().data(study(factors=factors, baseline={"protocol": "old array"})))
    assert "--arm:var(--green)" in text
    assert "old array = 100" in text


@pytest.mark.long
def test_report_of_a_thousand_trials_draws_no_more_panels_than_a_reader_takes_in(tmp_path):
    factors = {
        "protocol": ["local", "nfs3", "iscsi", "nvme-tcp"],
        "outstanding": [1, 2, 4, 8, 16],
        "read": [0, 50, 100],
    }
    data = Simulation().data(study(factors=factors, design={"replicates": 17, "blocks": "replicate", "seed": 1}))
    notebook = write_notebook(tmp_path / "large.iotax", data)
    assert len(data.attempts) == 1020
    with Notebook(notebook) as opened:
        path = report.write(opened, tmp_path / "report.html")
    # Panels take most of the time, about 80 ms each.
    assert 0 < path.read_text().count('class="panel"') <= 100
    assert path.stat().st_size < 8_000_000


def test_the_verdict_is_grouped_as_the_command_line_groups_it(tmp_path):
    data = Simulation().data(study())
    text = written(tmp_path, data)
    verdict = text[text.index('<section id="verdict">') : text.index("</section>")]
    said = [html.unescape(each).replace("\u00a0", " ") for each in re.findall(r"<d[td][^>]*>(.*?)</d[td]>", verdict)]
    parts = answer(summarise(data))
    assert said == [line for part in parts for line in (part.title, *(f.sentence for f in part.findings))]
    # Findings on the study's first response are emphasized.
    leading = re.findall(r'<dd class="lead">(.*?)</dd>', verdict)
    assert [html.unescape(each).replace("\u00a0", " ") for each in leading] == [
        f.sentence for part in parts for f in part.findings if f.response_key == "iops"
    ]


def test_a_browser_carries_out_nothing_in_the_page_but_its_own(tmp_path):
    page = written(tmp_path, Simulation().data(study(question='a<script>b</script> style="--n:7"?')))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "unsafe-inline" not in policy[1]
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert f"script-src 'sha256-{digest(script)}';" in policy[1]
    for text in (style, *re.findall(r'<[^>]* style="([^"]*)"', page)):
        assert f"'sha256-{digest(text)}'" in policy[1]
