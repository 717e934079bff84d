"""Files in vdbench's formats, written by hand: two runs, one of which only formats the disk."""

from __future__ import annotations

HEAD = """\
{date}    interval        i/o   MB/sec   bytes   read     resp     read    write     read    write     resp  queue  cpu%  cpu%
                               rate  {unit}     i/o    pct     time     resp     resp      max      max   stddev  depth sys+u   sys
"""  # noqa: E501
INTERVALS = """\
10:00:02.018           1      900.0     3.52    4096  75.00    2.100    1.600    3.600    21.00    31.00    1.000    1.9   9.2   1.5
10:00:03.011           2     1000.0     3.91    4096  75.00    2.000    1.500    3.500    20.00    40.00    1.000    2.0   5.0   0.5
10:00:04.011           3     1000.0     3.91    4096  75.00    2.000    1.500    3.500    19.00    30.00    1.000    2.0   3.5   1.0
10:00:04.053     avg_2-3     1000.0     3.91    4096  75.00    2.000    1.500    3.500    20.00    40.00    1.000    2.0   4.3   0.8
"""  # noqa: E501
FORMAT = """\
10:00:00.156           1      320.0    40.00  131072   0.00    0.739    0.000    0.739     0.00    32.50    2.466    0.2  36.5  25.0
10:00:00.181     avg_2-1        0.0     0.00       0   0.00    0.000    0.000    0.000     0.00     0.00    0.000    0.0   NaN   NaN
"""  # noqa: E501
START = "10:00:01.001 Starting RD=rd1; I/O rate: 1250; elapsed=3; For loops: threads=16\n\n"


def terminal(*, unit: str = "1024**2", date: str = "May 01, 2026") -> str:
    """Terminal output, which HCIBench keeps for each virtual machine."""
    head = HEAD.format(date=date, unit=unit)
    return (
        "Vdbench distribution: vdbench50407 Tue June 05  9:49:29 MDT 2018\n"
        "10:00:00.004 Starting RD=SD_format; I/O rate: Uncontrolled MAX; elapsed=(none); For loops: threads=2\n\n"
        f"{head}{FORMAT}{START}{head}{INTERVALS}"
        "10:00:05.008 Vdbench execution completed successfully.\n"
    )


def summary(**more: str) -> str:
    """The same text within HTML tags."""
    text = terminal(**more).replace(START, f'<a name="_12"></a><i><b>{START.strip()}</b></i>\n\n')
    return f"<title>Vdbench Summary</title><pre>\nLink to flatfile: <A HREF='flatfile.html'>f</A>\n{text}"


def histogram(reads: int = 1500, writes: int = 500) -> str:
    """Half of the reads take up to 1 ms, nearly all others up to 4 ms; writes take twice as long."""
    fast_r, fast_w = reads // 2, writes // 2
    slow_r, slow_w = reads - fast_r - 5, writes - fast_w - 5
    return f"""\
<title>Vdbench histogram</title><pre>
<i><b>{START.strip()}</b></i>

Reads and writes:
  min(ms) <     max(ms)        count       %%    cum%%  '+': Individual%; '+-': Cumulative%

    0.000 <       1.000     {fast_r + fast_w:,} 50.0000  50.0000  ++++
    1.000 <         max     {slow_r + slow_w + 10:,} 50.0000 100.0000  ++++----

Reads:
  min(ms) <     max(ms)        count       %%    cum%%  '+': Individual%; '+-': Cumulative%

    0.000 <       1.000     {fast_r:,} 50.0000  50.0000  +++++++++++++++++++++++++
    1.000 <       4.000     {slow_r:,} 49.6667  99.6667  ++++++++++++++++++++++++-----
    4.000 <         max            5   0.3333 100.0000  -----

Writes:
  min(ms) <     max(ms)        count       %%    cum%%  '+': Individual%; '+-': Cumulative%

    0.000 <       2.000     {fast_w:,} 50.0000  50.0000  +++++++++++++++++++++++++
    2.000 <       8.000     {slow_w:,} 49.0000  99.0000  ++++++++++++++++++++++++-----
    8.000 <         max            5   1.0000 100.0000  -----
"""
