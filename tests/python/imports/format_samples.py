"""Sample output of programs other than fio and vdbench, written by hand from the documentation of their formats."""

from __future__ import annotations

import json
from typing import Any

DISKSPD = """\
<Results>
  <System><Tool><Version>2.2.0</Version></Tool></System>
  <Profile><TimeSpans><TimeSpan><Warmup>5</Warmup><Targets><Target>
    <BlockSize>8192</BlockSize><RequestCount>16</RequestCount><ThreadsPerFile>2</ThreadsPerFile>
    <WriteRatio>0</WriteRatio><Random>8192</Random><Throughput>0</Throughput>
  </Target></Targets></TimeSpan></TimeSpans></Profile>
  <TimeSpan>
    <TestTimeSeconds>2.00</TestTimeSeconds>
    <CpuUtilization><CPU/><CPU/><CPU/><CPU/>
      <Average><UsagePercent>25.00</UsagePercent><UserPercent>5.00</UserPercent>
        <KernelPercent>20.00</KernelPercent></Average>
    </CpuUtilization>
    <Latency><AverageReadMilliseconds>1.500</AverageReadMilliseconds>
      <Bucket><Percentile>0</Percentile><ReadMilliseconds>0.100</ReadMilliseconds>
        <TotalMilliseconds>0.100</TotalMilliseconds></Bucket>
      <Bucket><Percentile>99</Percentile><ReadMilliseconds>4.250</ReadMilliseconds>
        <TotalMilliseconds>4.250</TotalMilliseconds></Bucket>
      <Bucket><Percentile>100</Percentile><ReadMilliseconds>9.000</ReadMilliseconds>
        <TotalMilliseconds>9.000</TotalMilliseconds></Bucket>
    </Latency>
    <Thread><Target><ReadBytes>8192000</ReadBytes><ReadCount>1000</ReadCount>
      <WriteBytes>0</WriteBytes><WriteCount>0</WriteCount></Target></Thread>
    <Thread><Target><ReadBytes>8192000</ReadBytes><ReadCount>1000</ReadCount>
      <WriteBytes>0</WriteBytes><WriteCount>0</WriteCount></Target></Thread>
  </TimeSpan>
</Results>
"""
VDBENCH = """\
<pre>* vdbench flatfile
* comments
       tod      Run  Interval reqrate    rate  MB/sec bytes/io read%   resp read_resp write_resp resp_max threads xfersize
10:00:01.000    rd1         1  999988  900.00    3.52     4096 75.00  2.000     2.000      2.000   20.000      16     4096
10:00:06.000    rd1         2  999988 1000.00    3.91     4096 75.00  2.000     1.500      3.500   40.000      16     4096
10:00:11.000    rd1         3  999988 1000.00    3.91     4096 75.00  2.000     1.500      3.500   40.000      16     4096
10:00:11.000    rd1   avg_2-3  999988 1000.00    3.91     4096 75.00  2.000     1.500      3.500   40.000      16     4096
"""  # noqa: E501
IOMETER = """\
'Test Type,Test Description
0,
'Version
1.1.0
'Time Stamp
2026-05-01 10:00:00:123
'Access specifications
'Access specification name,default assignment
4K read,1
'size,% of size,% reads,% random,delay,burst,align,reply
4096,100,100,100,0,1,0,0
'Results
'Target Type,Target Name,Access Specification Name,# Managers,# Workers,# Disks,IOps,Read IOps,Write IOps,Average Response Time,Average Read Response Time,Average Write Response Time,Maximum Read Response Time,Maximum Write Response Time,Errors,Bytes Read,Bytes Written,Read I/Os,Write I/Os,Queue Depth
ALL,All,4K read,1,2,2,5000.5,5000.5,0,3.2,3.2,0,25.5,0,0,204820480,0,50005,0,16
MANAGER,HOST,4K read,,2,2,5000.5,5000.5,0,3.2,3.2,0,25.5,0,0,204820480,0,50005,0,16
"""  # noqa: E501
ELBENCHO = """\
ISO date,label,path type,paths,hosts,threads,block size,random,IO depth,operation,time ms [first],time ms [last],IOPS [first],IOPS [last],MiB/s [first],MiB/s [last],CPU% [first],CPU% [last],IO lat us [min],IO lat us [avg],IO lat us [max]
2026-05-22T16:09:38,,dir,1,2,8,1048576,0,4,MKDIRS,2,5,,,,,8,7,,,
2026-05-22T16:09:38,,dir,1,2,8,1048576,0,4,WRITE,1000,2000,3000,2500,3000,2500,10,9,1661,9383,120903
2026-05-22T16:09:41,,dir,1,2,8,1048576,0,4,READ,1950,2000,9673,9048,9673,9048,9,8,553,3223,6922
"""  # noqa: E501
PERF = """\
spdk_nvme_perf -q 8 -o 4096 -w randread -t 2 -LL
========================================================
Device Information                    :       IOPS      MiB/s    Average        min        max
TCP (addr:10.0.0.1) NSID 1 from core  0:    1000.00       3.91     500.00     100.00    2000.00
TCP (addr:10.0.0.1) NSID 1 from core  1:    1000.00       3.91     700.00      90.00    3000.00
========================================================
Total                                 :    2000.00       7.81     600.00      90.00    3000.00

"""
PERF_BINS = """\
Latency histogram for TCP (addr:10.0.0.1) NSID 1                  from core {}:
       Range in us     Cumulative    IO count
  100.000 -   200.000:   50.0000%  (     1000)
  200.000 -  2000.000:  100.0000%  (     1000)

"""
PERF_CUTS = """\
Summary latency data for TCP (addr:10.0.0.1) NSID 1                  from core {}:
  50.00000% :   200.000us
  99.00000% :  1900.000us

"""
BDEVPERF = {
    "results": [
        {"job": "n1", "workload": "randwrite", "queue_depth": 32, "io_size": 4096, "runtime": 2.0, "iops": 1000.0,
         "mibps": 3.90625, "io_failed": 1, "avg_latency_us": 640.0, "min_latency_us": 90.0, "max_latency_us": 4000.0},
    ],
}  # fmt: skip
SYSBENCH = """\
sysbench 1.0.20 (using system LuaJIT)
Number of threads: 4
SQL statistics:
    transactions:                        1000   (500.00 per sec.)
    ignored errors:                      2      (1.00 per sec.)
General statistics:
    total time:                          2.0000s
    total number of events:              1000

Latency (ms):
         min:                                    1.10
         avg:                                    8.00
         max:                                   50.25
         95th percentile:                       20.50
         sum:                                 8000.00
"""
PGBENCH = """\
pgbench (16.4)
scaling factor: 10
number of clients: 4
number of transactions actually processed: 1482
number of failed transactions: 0 (0.000%)
latency average = 8.057 ms
tps = 494.000000 (without initial connection time)
"""


def elbencho_phase(phase: str, **last: Any) -> str:
    """A line of elbencho's JSON file, where all values are strings."""
    config = {"hosts": "2", "threads": "4", "block_size": "4096", "io_depth": "8", "random_offsets": "true"}
    return json.dumps(
        {
            "phase_type": phase,
            "iso_start_date": "2026-03-01T12:00:00.250+0100",
            "config": config | {"version": "3.0-22"},
            "first_done": {"elapsed_time_ms": "1000"},
            "last_done": {"elapsed_time_ms": "2000", **last},
        }
    )


def buckets(**counts: int) -> dict[str, Any]:
    """A histogram; `b64_76=3` is a bucket from 64 to 76 µs with a count of 3."""
    named = ((name[1:].replace("_", "-"), count) for name, count in counts.items())
    return {"buckets": [{"range": f"{name}us", "count": str(count)} for name, count in named]}
