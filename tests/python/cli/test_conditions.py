"""Conditions as sentences print them."""

import pytest

from iotax.wording.conditions import under


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("protocol fc-nvme · read 0%", "with FC-NVMe and 0 % reads"),
        ("", ""),
        (None, ""),
        ("outstanding 1", "with 1 outstanding I/O"),
        ("outstanding 32", "with 32 outstanding I/Os"),
        ("block size 4KiB · outstanding 8", "with 4 KiB blocks and 8 outstanding I/Os"),
        ("read 75% · random 0% · threads 1", "with 75 % reads, 0 % random I/O and 1 thread"),
        ("rate iops 70000", "with 70,000 IOPS offered"),
        ("mtu 9000", "with mtu 9000"),
        ("streams mail", "with streams mail"),
    ],
)
def test_a_condition_reads_as_english(condition: str | None, said: str) -> None:
    assert under(condition) == said
