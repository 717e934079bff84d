import pytest

from closed_queue import closed_mmc
from iotax.queueing.open import erlang_b

US = 1e-6
Z = 500 * US

NFS = [
    (32, 54_968.1805, 82.15498),
    (64, 96_521.0162, 163.0680),
    (128, 98_765.4321, 796),
    (384, 98_765.4321, 3388),
    (640, 98_765.4321, 5980),
]
FC = [
    (32, 59_148.3945, 41.01215),
    (64, 118_005.7072, 42.34665),
    (128, 194_793.7563, 157.10525),
    (384, 195_121.9512, 1468),
    (640, 195_121.9512, 2780),
]


@pytest.mark.parametrize(("service_us", "n", "x", "r_us"), [(81, *row) for row in NFS] + [(41, *row) for row in FC])
def test_closed_mm8_agrees_with_high_precision(service_us, n, x, r_us):
    queue = closed_mmc(n, service_us * US, 8, Z)
    assert queue.throughput_per_s == pytest.approx(x, rel=1e-8)
    assert queue.response_s / US == pytest.approx(r_us, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 10, 200])
def test_one_server_satisfies_the_erlang_b_identity(n):
    assert closed_mmc(n, 81 * US, 1, Z).throughput_per_s == pytest.approx((1 - erlang_b(n, Z / (81 * US))) / (81 * US))


def test_ten_thousand_customers_stay_finite_and_saturate():
    queue = closed_mmc(10_000, 81 * US, 8, Z)
    assert queue.throughput_per_s == pytest.approx(8 / (81 * US))
    assert queue.utilisation == pytest.approx(1)


def test_without_think_time_the_servers_are_always_busy():
    queue = closed_mmc(32, 81 * US, 8)
    assert queue.throughput_per_s == pytest.approx(8 / (81 * US))
    assert queue.response_s == pytest.approx(4 * 81 * US)
