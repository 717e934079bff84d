"""Results of several hosts, together and individually."""

from __future__ import annotations

from statistics import geometric_mean

import pytest

from iotax.analysis import StudyData, summarise
from iotax.analysis.clients import Clients, clients_of
from iotax.report.page import Page
from iotax.report.sections import clients as rows
from iotax.trial import Client
from iotax.units import show_rate
from iotax.wording import clients, figure, trust
from report.factory import Simulation, study


def of_hosts(shares: dict[str, float], waiting: tuple[str, ...] = ()) -> StudyData:
    """The simulated study, with its I/Os divided among several hosts."""
    data = Simulation(waiting=waiting).data(study())
    for attempt in data.attempts:
        result = attempt.result
        if result is None:
            continue
        parts = tuple(
            Client(
                host=host,
                started_after_ns=0,
                clock_error_ns=1000,
                duration_ns=result.window.duration_ns,
                ios=round(share * result.ios),
                bytes=0,
                latency_sum_ns=0,
            )
            for host, share in shares.items()
        )
        object.__setattr__(result, "clients", parts)
    return data


def test_totals_are_those_of_all_hosts_and_the_slowest_is_named() -> None:
    summary = summarise(of_hosts({"h1": 0.5, "h2": 0.4, "h3": 0.1}))
    found = clients_of(summary)
    assert len(found) == len(summary.cells)
    for each in found:
        runs = each.cell.runs
        assert each.total_iops == pytest.approx(geometric_mean(run.result.rate_iops for run in runs))
        assert sum(each.rates_iops.values()) == pytest.approx(each.total_iops, rel=1e-3)
        # The same figure as in the table of treatments.
        assert each.total_iops == pytest.approx(each.cell.values["iops"].value)
        assert set(each.cpu_per_io_ns) <= {"initiator", "target"}
    # Jain, Chiu, Hawe 1984: (Σx)² / (n Σx²).
    assert found[0].fairness == pytest.approx(1 / (3 * (0.25 + 0.16 + 0.01)), rel=1e-3)
    line = clients.sentences(summary)[0]
    assert ": 3 clients (h1, h2, h3), " in line
    assert "(h3) to" in line
    assert line.endswith("(h1) each; fairness (Jain's index) 0.79. CPU per I/O: " + line.partition("CPU per I/O: ")[2])
    assert "µs on initiators" in line


def test_totals_of_mostly_disturbed_runs_say_so() -> None:
    shares = {"h1": 0.5, "h2": 0.5}
    waiting = tuple(each.trial.id for each in of_hosts(shares).attempts)
    assert not any("doubtful" in line for line in clients.sentences(summarise(of_hosts(shares))))
    assert all(line.endswith("; doubtful.") for line in clients.sentences(summarise(of_hosts(shares, waiting))))


def test_the_first_section_of_a_report_names_clients_totals_and_cpu_by_role() -> None:
    summary = summarise(of_hosts({"h1": 0.5, "h2": 0.5}))
    page = Page(summary, "n.iotax").html()
    verdict = page.partition('<section id="verdict">')[2].partition("</section>")[0]
    assert "<dt>Clients</dt>" in verdict
    assert "2 clients: h1, h2." in verdict
    table = verdict.partition("Clients, their totals and CPU by role")[2].partition("</table>")[0]
    for column in ("Clients", "Total", "Least", "Most", "Fairness", "Initiators", "Targets"):
        assert f">{column}<small>" in table


def test_the_table_has_the_figures_of_the_sentences() -> None:
    summary = summarise(of_hosts({"h1": 0.5, "h2": 0.4, "h3": 0.1}))
    found, (first, rest) = clients_of(summary), rows.groups(summary)
    shown = [row for group in first for row in group.rows]
    assert (len(shown), rest) == (len(found), [])
    order = {group.condition.lower(): place for place, group in enumerate(first)}
    found.sort(key=lambda each: order[each.cell.condition.lower()])
    for row, each in zip(shown, found, strict=True):
        told = [cell.value for cell in row.figures]
        assert len(told) == len(rows.columns(summary))
        assert told[:2] == ["3", show_rate(each.total_iops)]
        assert told[4] == "0.79"
        assert [cell.interval for cell in row.figures[2:4]] == ["h3", "h1"]
        assert told[2:4] == [show_rate(each.rates_iops[host]) for host in ("h3", "h1")]
        assert told[5] == figure(each.cpu_per_io_ns["initiator"] / 1e3)


def test_of_many_treatments_the_first_are_shown_and_the_rest_folded_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROWS_MAX", 2)
    summary = summarise(of_hosts({"h1": 0.5, "h2": 0.5}))
    first, rest = rows.groups(summary)
    assert sum(len(group.rows) for group in first) == 2
    assert sum(len(group.rows) for group in rest) == len(summary.cells) - 2
    assert "<summary>The other treatments</summary>" in Page(summary, "n.iotax").html()


def test_a_study_of_one_host_says_nothing_of_clients() -> None:
    summary = summarise(Simulation().data(study()))
    assert clients_of(summary) == []
    assert "<dt>Clients</dt>" not in Page(summary, "n.iotax").html()


def test_many_hosts_are_not_all_named() -> None:
    summary = summarise(of_hosts({f"h{number}": 0.01 for number in range(1, 101)}))
    assert ": 100 clients (h1 to h100), " in clients.sentences(summary)[0]


def test_one_host_alone_is_fair() -> None:
    summary = summarise(of_hosts({"h1": 1.0}))
    assert clients_of(summary)[0].fairness == 1.0
    assert Clients(summary.cells[0], 0.0, {"h1": 0.0}, {}).fairness == 1.0


def test_trials_with_fewer_clients_are_told_and_counted_nowhere() -> None:
    data = of_hosts({"h1": 0.5, "h2": 0.5})
    lone = data.attempts[0]
    assert lone.result is not None
    whole = summarise(data)
    object.__setattr__(lone.result, "left_out", ("h3",))
    summary = summarise(StudyData(data.study, data.attempts, data.planned))
    assert [run.trial.id for run in summary.data.apart] == [lone.trial.id]
    assert lone.trial.id not in {run.trial.id for run in summary.data.runs}
    assert sum(len(each.runs) for each in summary.cells) == sum(len(each.runs) for each in whole.cells) - 1
    [finding] = [each for each in trust(summary) if each.subject == "apart"]
    told = "1 trial ran with fewer clients, without h3, and no figure or comparison counts it"
    assert finding.text.startswith(f"{told}: {lone.trial.id}, 2 of 3 clients, ")
    page = Page(summary, "n.iotax").html()
    assert told in page.partition('<section id="verdict">')[2].partition("</section>")[0]


def test_a_report_of_such_trials_alone_compares_nothing() -> None:
    data = of_hosts({"h1": 0.5, "h2": 0.5})
    for attempt in data.attempts:
        if attempt.result is not None:
            object.__setattr__(attempt.result, "left_out", ("h3",))
    summary = summarise(StudyData(data.study, data.attempts, data.planned))
    assert not summary.data.runs
    assert "ran with fewer clients, without h3" in Page(summary, "n.iotax").html()
