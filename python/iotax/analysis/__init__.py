"""Analysis: from the records of a study to answers.

Pure: typed records in, dataclasses out; no lab, no process, no file.

`summarise(StudyData(study, attempts, planned, backgrounds, environment)) -> Summary`. A `Summary` has

- `cells`: for each treatment in the study's order a `CellSummary`: `cell` (level labels), `arm` and `condition`,
  `runs`, `values[key]` an `Estimate(value, low, high)` in the response's unit, `ratios[key]` a `Comparison` with the
  baseline (`ratio`, `verdict`), `checks` and their weightiest `level`, `latency` the merged histogram, `quantiles` of
  it with intervals. Keys are those of `RESPONSES`: iops, bandwidth, latency, latency_p50, latency_p99, latency_p999,
  cpu, cpu_initiator, cpu_target, cpu_hypervisor, cpu_machine, cpu_guest, cpu_generator, cpu_disk, cpu_qemu,
  cpu_io_threads, cpu_vhost, cpu_host_rest, cpu_initiator_kernel, cpu_target_kernel;
- `shifts`: for each arm and condition a `Shift` whose `points` give the latency difference to the baseline, in µs and
  as a ratio, at each quantile;
- `noise`: each response's `Noise` floor;
- `models[key].variation`: variances of logarithms between blocks, whole plots and runs, where the design is balanced;
- `data.excluded`: runs that the study's `exclude` leaves out, each with its findings, and `unexcluded` the summary with
  them (None if there are none);
- `responses`: those that the study asks for, the primary first; `grid`: arms, conditions, the baseline arm;
- `overalls`: each arm over all conditions, `depends` where there is no overall answer; `taxes`: differences to local.

The words for it are in `iotax.wording`. Times of a response are in microseconds, rates per second, bandwidth in MiB/s.
"""

from iotax.analysis.compare import Comparison, Overall, Tax
from iotax.analysis.data import Excluded, Grid, StudyData
from iotax.analysis.estimate import Estimate
from iotax.analysis.noise import Noise
from iotax.analysis.quantiles import Quantile, Shift, ShiftPoint
from iotax.analysis.responses import RESPONSES, Response, Run
from iotax.analysis.summary import CellSummary, Summary, summarise
from iotax.analysis.validity import Check, Severity
from iotax.analysis.verdict import Verdict

__all__ = [
    "RESPONSES",
    "CellSummary",
    "Check",
    "Comparison",
    "Estimate",
    "Excluded",
    "Grid",
    "Noise",
    "Overall",
    "Quantile",
    "Response",
    "Run",
    "Severity",
    "Shift",
    "ShiftPoint",
    "StudyData",
    "Summary",
    "Tax",
    "Verdict",
    "summarise",
]
