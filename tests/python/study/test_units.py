"""Conversion between numbers and text with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iotax.units import (
    format_duration,
    format_percent,
    format_size,
    parse_duration,
    parse_percent,
    parse_rate,
    parse_size,
    read_as_binary,
    show_minutes,
    show_rate,
    show_time,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096),
        ("4k", 4096),
        ("4KiB", 4096),
        ("4KB", 4096),
        ("1g", 1 << 30),
        ("1.5MiB", 3 << 19),
        ("512B", 512),
        (8, 8),
    ],
)
def test_sizes_are_binary_as_in_fio(text: object, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "4q", "-4k", "0", 0, -1, True, 4.5, None, "4.3B", [4]])
def test_sizes_that_are_none_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"size|whole|zero"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("2s", 2_000_000_000),
        ("500ms", 500_000_000),
        ("1.5us", 1500),
        ("5min", 300_000_000_000),
        (2, 2_000_000_000),
        ("0s", 0),
    ],
)
def test_durations_name_their_unit_or_are_seconds(text: object, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize("text", ["5", "10 parsecs", "-1s", True, None, "0.5ns", -1])
def test_durations_that_are_none_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"duration|whole"):
        parse_duration(text)


@given(st.integers(min_value=1, max_value=1 << 62))
def test_a_size_reads_back_as_written(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@given(st.integers(min_value=0, max_value=1 << 62))
def test_a_duration_reads_back_as_written(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns


@given(st.integers(min_value=0, max_value=10_000))
def test_a_percentage_reads_back_as_written(hundredths: int) -> None:
    assert parse_percent(format_percent(hundredths / 100)) == hundredths / 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (0.75, "Write 75% or 0.75%"),
        ("0.75", "Write 75% or 0.75%"),
        (0.005, "Write 0.5% or 0.005%"),
        (1.0, "Write 100% or 1.0%"),
        ("1.0", "Write 100% or 1.0%"),
        (0.29, "Write 29% or 0.29%"),
    ],
)
def test_a_fraction_of_one_without_its_sign_is_refused(text: object, said: str) -> None:
    with pytest.raises(ValueError, match=f"a fraction of 1 or a percentage. {said}"):
        parse_percent(text)


@pytest.mark.parametrize(
    ("text", "percent"),
    [("0.75%", 0.75), ("1.0%", 1.0), (1, 1), ("1", 1), (0, 0), (0.0, 0), (1.5, 1.5), ("99.9", 99.9)],
)
def test_a_percentage_that_can_mean_one_thing_only_needs_no_sign(text: object, percent: float) -> None:
    assert parse_percent(text) == percent


@pytest.mark.parametrize(
    ("text", "rate_iops"), [(70000, 70000), ("70000", 70000), ("70k", 70000), ("1.5M", 1_500_000), (0, 0), ("0", 0)]
)
def test_suffixes_of_rates_are_decimal(text: object, rate_iops: int) -> None:
    assert parse_rate(text) == rate_iops


@pytest.mark.parametrize("text", ["", "70K", "70x", "k", "-1", 1.5, True, None, "0.0001k"])
def test_rates_that_are_none_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"rate|whole"):
        parse_rate(text)


def test_a_decimal_unit_of_a_size_is_known_to_be_read_as_binary() -> None:
    assert [read_as_binary(each) for each in ("128MB", "4 kb", "1.5GB")] == ["128MiB", "4KiB", "1.5GiB"]
    assert [read_as_binary(each) for each in ("128MiB", "4k", "512B", 4096, None)] == [None] * 5


@pytest.mark.parametrize("text", ["101%", "many", -1, True, None])
def test_percentages_that_are_none_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="percentage"):
        parse_percent(text)


def test_figures_for_people_have_three_digits() -> None:
    assert [show_time(12_345), show_time(999), show_time(1.5e9)] == ["12.3 µs", "999 ns", "1.50 s"]
    assert [show_rate(123_456), show_rate(4_560_000), show_rate(7)] == ["123k", "4.56M", "7.00"]
    assert [show_minutes(45), show_minutes(150), show_minutes(3900)] == ["45 s", "2 min 30 s", "1 h 05 min"]
