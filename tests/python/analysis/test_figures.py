"""How ratios and their intervals are printed."""

from iotax.analysis.estimate import Estimate
from iotax.wording.figures import figure, indexed, indexed_ends, percent, points, signed, span


def test_an_end_that_is_as_good_as_unknown_is_not_written_with_all_its_digits() -> None:
    wild = Estimate(1.2, 1e-8, 7_423_833.07)
    assert span(wild) == "95 % CI under 0.001 to over 1,000 times"
    assert indexed_ends(wild)[1] == "over 100,000"
    assert (indexed(1000), span(Estimate(3.0, 0.01, 900.0))) == ("100,000", "95 % CI 0.0100 to 900 times")


def test_a_large_ratio_that_is_known_is_written_as_it_is() -> None:
    known = Estimate(1500.0, 1490.0, 1510.0)
    assert span(known) == "95 % CI 1,490 to 1,510 times"
    assert (indexed(known.value), *indexed_ends(known)) == ("150,000", "149,000", "151,000")


def test_ends_of_an_interval_are_told_apart() -> None:
    assert span(Estimate(0.109, 0.1061, 0.1093)) == "95 % CI −89.4 % to −89.1 %"
    assert span(Estimate(0.85, 0.84, 0.86)) == "95 % CI −16 % to −14 %"
    assert span(Estimate(0.5, 0.5, 0.50000001)) == "95 % CI −50 % to −50 %"


def test_what_is_left_of_adding_floating_point_numbers_is_written_as_nothing() -> None:
    """Coefficients and F values of simulated studies were once printed as 0.0000000000000195."""
    rest = 0.1 + 0.2 - 0.3
    assert 0 < rest < 1e-15
    assert [figure(each) for each in (rest, -rest, 0.0, 2e-9)] == ["0", "0", "0", "2.00e-09"]
    assert (percent(rest), signed(-rest), points(1 + rest), points(1 - rest)) == ("0.0 %", "+0.0 %", "+0.0", "+0.0")
    assert (indexed(1 + rest), indexed(1 - rest)) == ("100", "100")
    # Small differences that are real keep their first digit.
    assert (percent(2e-5), points(1.0003), indexed(0.9996)) == ("0.002 %", "+0.03", "99.96")


def test_what_is_far_below_one_is_written_as_a_power_of_ten() -> None:
    numbers = (2.33e-8, -3e-7, 0.00052, 0.00123, 0.0123)
    assert [figure(each) for each in numbers] == ["2.33e-08", "−3.00e-07", "5.20e-04", "0.00123", "0.0123"]


def test_a_decrease_that_leaves_something_is_never_written_as_all() -> None:
    assert [signed(share) for share in (-0.94, -0.996, -0.99915, -1.0)] == ["−94 %", "−99.6 %", "−99.91 %", "−100 %"]
