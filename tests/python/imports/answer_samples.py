"""Small input files of other programs, with known runs, times and mixes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from import_samples import IDLE, fio_job, fio_output, fio_side

BEGAN = 1_777_629_600
"""2026-05-01 10:00:00 UTC."""
MINUTE_MS = 60_000


def minute(ios: int, p50: int, p99: int, *, runtime_ms: int = MINUTE_MS) -> dict[str, Any]:
    """One direction of a job that ran for a minute; percentiles in µs."""
    side = fio_side(ios, runtime_ms=runtime_ms)
    side["clat_ns"] = side["clat_ns"] | {"percentile": {"50.000000": p50 * 1000, "99.000000": p99 * 1000}}
    return side


def fio_reads(name: str = "rd", **more: Any) -> dict[str, Any]:
    """A job of reads with 10,000 IOPS."""
    return fio_job(name, read=minute(600_000, 380, 900), options={"iodepth": "4"}, **more)


def fio_writes(name: str = "wr", *, runtime_ms: int = MINUTE_MS, **more: Any) -> dict[str, Any]:
    """A job of writes with 5,000 IOPS."""
    side = minute(300_000, 700, 2500, runtime_ms=runtime_ms)
    return fio_job(name, read=IDLE, write=side, options={"rw": "randwrite", "iodepth": "4"}, **more)


def fio_report(*jobs: dict[str, Any], ended: int = BEGAN + 60, version: str = "3.33") -> str:
    return fio_output(*jobs, version=version, timestamp=ended, timestamp_ms=ended * 1000)


def fio_at(path: Path, *jobs: dict[str, Any], ended: int = BEGAN + 60) -> Path:
    path.write_text(fio_report(*jobs, ended=ended))
    return path


def mpstat(path: Path, *busy: tuple[int, float], cpus: int = 8) -> Path:
    """A monitor file with a sample every 10 s. `busy` has (seconds, busy share in percent), starting at BEGAN."""
    at, statistics = 0, []
    for seconds, percent in busy:
        for _ in range(seconds // 10):
            at += 10
            clock = f"10:{at // 60:02}:{at % 60:02}"
            statistics.append({"timestamp": clock, "cpu-load": [{"cpu": "all", "usr": percent, "idle": 100 - percent}]})
    host = {"nodename": "h", "number-of-cpus": cpus, "date": "2026-05-01", "statistics": statistics}
    path.write_text(json.dumps({"sysstat": {"hosts": [host]}}))
    return path


FIO_TEXT = """\
job1: (g=0): rw=randrw, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=32
fio-3.33
Starting 1 process

job1: (groupid=0, jobs=1): err= 0: pid=1: Fri May  1 10:01:00 2026
  read: IOPS=16.1k, BW=62.9MiB/s (66.0MB/s)(3777MiB/60003msec)
    slat (usec): min=12, max=914, avg=51.87, stdev=16.19
    clat (usec): min=796, max=21911, avg=1929.49, stdev=418.53
     lat (usec): min=852, max=21961, avg=1982.19, stdev=417.21
    clat percentiles (usec):
     |  1.00th=[ 1336], 50.00th=[ 1844], 99.00th=[ 3458],
     | 99.90th=[ 5211]
   bw (  KiB/s): min=60000, max=66000, per=100.00%, avg=64410.00, stdev=100.00, samples=120
   iops        : min=15000, max=16500, avg=16102.00, stdev=25.00, samples=120
  write: IOPS=6900, BW=27.0MiB/s (28.3MB/s)(1618MiB/60003msec); 0 zone resets
    clat (msec): min=1, max=1210, avg= 4.20, stdev= 1.10
     lat (msec): min=1, max=1210, avg= 4.25, stdev= 1.10
  lat (usec)   : 1000=0.03%
  fsync/fdatasync/sync_file_range:
    sync (nsec): min=60, max=9000, avg=410.00, stdev=10.00
    sync percentiles (nsec):
     | 50.00th=[  400], 99.00th=[  900]
  cpu          : usr=3.10%, sys=9.00%, ctx=100, majf=0, minf=10
     issued rwts: total=966912,414009,0,500 short=0,0,0,0 dropped=0,0,0,0
"""
FIO_2_TEXT = """\
old: (g=0): rw=read, bs=64K-64K/64K-64K/64K-64K, ioengine=sync, iodepth=1
fio-2.1.4
Starting 2 processes

old: (groupid=0, jobs=2): err= 0: pid=7: Fri May  1 10:01:00 2026
  read : io=1024.0MB, bw=104858KB/s, iops=1638, runt= 10000msec
    clat (usec): min=200, max=9000, avg=610.25, stdev=10.00
     lat (usec): min=201, max=9001, avg=611.00, stdev=10.00
  cpu          : usr=1.00%, sys=2.00%, ctx=1, majf=0, minf=1
     issued    : total=r=16384/w=0/d=0, short=r=0/w=0/d=0
"""
DISKSPD_TEXT = """\

Command Line: diskspd.exe -b8K -d60 -W5 -o4 -t2 -r -w25 -L X:\\a.dat

Input parameters:

\ttimespan:   1
\t-------------
\tduration: 60s
\twarm up time: 5s
\tcool down time: 0s
\tmeasuring latency
\trandom seed: 0
\tpath: 'X:\\a.dat'
\t\tthink time: 0ms
\t\tburst size: 0
\t\tsoftware cache disabled
\t\tperforming mix test (read/write ratio: 75/25)
\t\tblock size: 8KiB
\t\tusing random I/O (alignment: 8KiB)
\t\tnumber of outstanding I/O operations per thread: 4
\t\tthreads per file: 2
\t\tusing I/O Completion Ports
\t\tIO priority: normal

System information:

\tcomputer name: HOST
\tstart time: 2026/05/01 10:00:00 UTC

Results for timespan 1:
*******************************************************************************

actual test time:\t60.00s
thread count:\t\t2

CPU |  Usage |  User  | Kernel |  Idle
----------------------------------------
   0|  30.00%|  10.00%|  20.00%|  70.00%
   1|  10.00%|   5.00%|   5.00%|  90.00%
----------------------------------------
avg.|  20.00%|   7.50%|  12.50%|  80.00%

Total IO
thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | LatStdDev |  file
-----------------------------------------------------------------------------------------------------
     0 |      4915200000 |       600000 |      78.13 |   10000.00 |    0.400 |     0.100 | X:\\a.dat (1GiB)
-----------------------------------------------------------------------------------------------------
total:        4915200000 |       600000 |      78.13 |   10000.00 |    0.400 |     0.100

Read IO
thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | LatStdDev |  file
-----------------------------------------------------------------------------------------------------
     0 |      3686400000 |       450000 |      58.59 |    7500.00 |    0.300 |     0.100 | X:\\a.dat (1GiB)
-----------------------------------------------------------------------------------------------------
total:        3686400000 |       450000 |      58.59 |    7500.00 |    0.300 |     0.100

Write IO
thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | LatStdDev |  file
-----------------------------------------------------------------------------------------------------
     0 |      1228800000 |       150000 |      19.53 |    2500.00 |    0.700 |     0.100 | X:\\a.dat (1GiB)
-----------------------------------------------------------------------------------------------------
total:        1228800000 |       150000 |      19.53 |    2500.00 |    0.700 |     0.100

Total latency distribution:
  %-ile |  Read (ms) | Write (ms) | Total (ms)
----------------------------------------------
    min |      0.050 |      0.060 |      0.050
   50th |      0.280 |      0.650 |      0.350
   99th |      0.900 |      2.100 |      1.400
3-nines |      3.100 |      5.200 |      4.000
    max |      9.000 |     12.000 |     12.000
"""
SAR_TEXT = """\
Linux 6.1.0-18-amd64 (h1) \t{date} \t_x86_64_\t(8 CPU)

{start}     CPU     %user     %nice   %system   %iowait    %steal     %idle
{rows}

Average:        all      1.00      0.00      1.00      0.00      0.00     98.00
"""
VDBENCH_HEAD = (
    "tod Run Interval reqrate rate MB/sec bytes/io read% resp read_resp write_resp resp_max xfersize threads rdpct\n"
)
VDBENCH_FILES = """\
* Run : Name of run from RD=
tod Run Interval Reqrate Rate Rate_std Resp Resp_max MB/sec MB_read MB_write Xfersize Threads Read_rate Read_resp Read_resp_max Write_rate Write_resp Write_resp_max Open_rate
10:00:01.010 rd1 1 max 30000 0 1.2 9 97.7 78.1 19.6 4096 32 20000 1.6 9 5000 0.8 4 5000
10:00:02.010 rd1 2 max 30000 0 1.2 9 97.7 78.1 19.6 4096 32 20000 1.6 9 5000 0.8 4 5000
10:00:03.010 rd1 3 max 30000 0 1.2 9 97.7 78.1 19.6 4096 32 20000 1.6 9 5000 0.8 4 5000
10:00:03.020 rd1 avg_2-3 max 30000 0 1.2 9 97.7 78.1 19.6 4096 32 20000 1.6 9 5000 0.8 4 5000
"""  # noqa: E501


def vdbench_run(
    name: str = "rd1", *, reqrate: float = 999_988, rate: float = 8000, size: int = 4096, asked: int = 4096,
    resp_ms: float = 0.0082, max_ms: float = 0.0738, threads: int = 1, seconds: int = 5,
) -> str:  # fmt: skip
    """Rows of one run; the first second is warm-up."""
    row = (
        f"{name} {{}} {reqrate} {rate} {rate * size / (1 << 20):.4f} {size} 100 {resp_ms} {resp_ms} 0 {max_ms} {asked} "
        f"{threads} 100\n"
    )
    intervals = [f"10:00:{second:02}.000 {row.format(second)}" for second in range(1, seconds + 1)]
    return "".join(intervals) + f"10:00:{seconds:02}.010 {row.format(f'avg_2-{seconds}')}"


VDBENCH_COUNTS = """\
<a name="_1"></a><i><b>10:00:00.001 Starting RD=rd1; I/O rate: Uncontrolled MAX; elapsed=6; For loops: None</b></i>

Reads:
  min(ms) <     max(ms)         count       %%    cum%%  '+': Individual%; '+-': Cumulative%

    0.000 <       0.020        30,400  95.0000  95.0000  +
    0.020 <       0.040         1,590   4.9688  99.9688  +
    0.040 <       0.080            10   0.0312 100.0000  +
"""
SYSBENCH_1_1 = """\
sysbench 1.1.0-2ca9e3f (using bundled LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 4

SQL statistics:
    transactions:                        1000   (500.00 per sec.)
    ignored errors:                      0      (0.00 per sec.)

Throughput:
    events/s (eps):                      500.0000
    time elapsed:                        2.0000s
    total number of events:              1000

Latency (ms):
         min:                                    1.10
         avg:                                    8.00
         max:                                   50.25
         95th percentile:                       20.50
         sum:                                 8000.00
"""
SYSBENCH_1_1_FILES = """\
sysbench 1.1.0 (using bundled LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 4

Block size 16KiB
Doing random r/w test

Throughput:
         read:  IOPS=1200.00 18.75 MiB/s (19.66 MB/s)
         write: IOPS=800.00 12.50 MiB/s (13.11 MB/s)
         fsync: IOPS=100.00

Latency (ms):
         min:                                  0.10
         avg:                                  1.90
         max:                                 50.25
         95th percentile:                      9.50
         sum:                              39900.00
"""
PGBENCH_9 = """\
transaction type: TPC-B (sort of)
scaling factor: 10
number of clients: 8
duration: 10 s
number of transactions actually processed: 3200
latency average: 25.000 ms
tps = 318.000000 (including connections establishing)
tps = 320.000000 (excluding connections establishing)
"""
ELBENCHO_CSV = """\
ISO date,hosts,threads,block size,random,IO depth,operation,time ms [first],time ms [last],IOPS [first],IOPS [last],MiB/s [first],MiB/s [last],IO lat us [min],IO lat us [avg],IO lat us [max],version
2026-05-01T10:01:00+0000,1,1,4096,1,1,READ,59900,60000,1000,1000,4,4,10,990,9000,{version}
"""  # noqa: E501
ELBENCHO_LIVE = (
    "ISO Date,Label,Phase,RuntimeMS,Rank,MixType,Done%,MiB/s,IOPS\n2026-05-01T10:00:01,,READ,1000,Total,,1,4,1000\n"
)
IOMETER_TESTS = """\
'Version
1.1.0
'Time Stamp
2026-05-01 09:59:00:000
'Access specifications
'Access specification name,default assignment
4K read,1
'size,% of size,% reads,% random,delay,burst,align,reply
4096,100,100,100,0,1,0,0
'Results
'Target Type,Target Name,Access Specification Name,# Managers,# Workers,# Disks,IOps,Average Read Response Time,Average Write Response Time,Maximum Read Response Time,Maximum Write Response Time,Errors,Bytes Read,Bytes Written,Read I/Os,Write I/Os,Queue Depth
ALL,All,4K read,1,2,2,1000,3.2,0,25.5,0,0,245760000,0,60000,0,1
'Time Stamp
2026-05-01 10:01:00:000
ALL,All,4K read,1,2,2,2000,3.2,0,25.5,0,0,491520000,0,120000,0,4
'Time Stamp
2026-05-01 10:02:30:000
"""  # noqa: E501
