"""What several hosts did together and each alone."""

from __future__ import annotations

from statistics import geometric_mean

import pytest

from iotax.analysis import StudyData, summarise
from iotax.analysis.clients import Clients, clients_of
from iotax.report import draw, render
from iotax.trial import Client
from iotax.wording import clients
from report.factory import Simulation, study


def of_hosts(shares: dict[str, float], waiting: tuple[str, ...] = ()) -> StudyData:
    """The simulated study, as if its I/Os were those of several hosts."""
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
    page = render(summary, draw(summary), "n.iotax")
    verdict = page.partition('<section id="verdict">')[2].partition("</section>")[0]
    assert "<dt>Clients</dt>" in verdict
    assert "2 clients (h1, h2)" in verdict


def test_a_study_of_one_host_says_nothing_of_clients() -> None:
    summary = summarise(Simulation().data(study()))
    assert clients_of(summary) == []
    assert "<dt>Clients</dt>" not in render(summary, draw(summary), "n.iotax")


def test_many_hosts_are_not_all_named() -> None:
    summary = summarise(of_hosts({f"h{number}": 0.01 for number in range(1, 101)}))
    assert ": 100 clients (h1 to h100), " in clients.sentences(summary)[0]


def test_one_host_alone_is_fair() -> None:
    summary = summarise(of_hosts({"h1": 1.0}))
    assert clients_of(summary)[0].fairness == 1.0
    assert Clients(summary.cells[0], 0.0, {"h1": 0.0}, {}).fairness == 1.0
