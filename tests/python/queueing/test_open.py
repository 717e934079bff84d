"""Reference values, computed to ten digits and checked against an R package, and textbook queues."""

import math

import pytest

from iotax.queueing import MMc
from iotax.queueing.open import erlang_b, erlang_c

US = 1e-6

# M/M/8, S = 81 µs: utilisation, C, Wq, R, R at S = 41 µs (µs).
MM8 = [
    (0.0, 0.0, 0.0, 81.0, 41.0),
    (0.2, 2.688280e-4, 0.0034024, 81.0034, 41.0017),
    (0.4, 0.01849480, 0.3120997, 81.3121, 41.1580),
    (0.6, 0.1395421, 3.532160, 84.5322, 42.7879),
    (0.8, 0.4576449, 23.16827, 104.1683, 52.7272),
    (0.9, 0.7015330, 71.03022, 152.0302, None),
]


@pytest.mark.parametrize(("rho", "c", "wait", "response", "response_41"), MM8)
def test_mm8_reproduces_published_table(rho, c, wait, response, response_41):
    queue = MMc(rho * 8 / (81 * US), 81 * US, 8)
    assert queue.utilisation == pytest.approx(rho)
    assert queue.wait_probability == pytest.approx(c, rel=1e-6, abs=1e-12)
    assert queue.wait_s / US == pytest.approx(wait, rel=2e-5, abs=1e-9)
    assert queue.response_s / US == pytest.approx(response, abs=6e-5)
    if response_41 is not None:
        assert MMc(rho * 8 / (41 * US), 41 * US, 8).response_s / US == pytest.approx(response_41, abs=6e-5)


def test_mm1_of_the_textbook():
    queue = MMc(1 / 4, 3.0, 1)
    assert queue.arrivals_per_s * queue.wait_s == pytest.approx(2.25)
    assert queue.response_s == pytest.approx(12)
    assert queue.wait_s == pytest.approx(9)


def test_mm2_of_the_textbook():
    queue = MMc(5, 0.1, 2)
    assert queue.arrivals_per_s * queue.wait_s == pytest.approx(0.0333333, rel=1e-5)
    assert queue.response_s == pytest.approx(0.1066667, rel=1e-6)
    assert queue.wait_probability == pytest.approx(0.1)


@pytest.mark.parametrize(("c", "a", "b", "wait"), [(3, 2, 0.2105263, 0.4444444), (15, 12, 0.08572925, 0.3191904)])
def test_erlang_formulas(c, a, b, wait):
    assert erlang_b(c, a) == pytest.approx(b, rel=1e-6)
    assert erlang_c(c, a) == pytest.approx(wait, rel=1e-6)


def test_erlang_b_of_ten_thousand_servers_neither_overflows_nor_vanishes():
    assert 0.007 < erlang_b(10_000, 10_000) < 0.009


def test_overloaded_queue_never_answers():
    queue = MMc(3, 1.0, 2)
    assert math.isinf(queue.response_s)
    assert queue.wait_probability == 1.0
