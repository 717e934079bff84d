"""The charts of a report, drawn from a `Summary`.

Each function gives a `Drawing`, or None if it has nothing to show.
"""

from iotax.report.charts.around_events import around_events, latency_around_events
from iotax.report.charts.base import Drawing, factor_title
from iotax.report.charts.cost import cost_effects, cost_half_normal, cost_interactions, cost_lines, cost_residuals
from iotax.report.charts.cpu import caption as cpu_caption
from iotax.report.charts.cpu import cpu_split, parts_used
from iotax.report.charts.cpu_time import cpu_over_time
from iotax.report.charts.effects import factor_effects, model_residuals
from iotax.report.charts.flame import flame_graphs
from iotax.report.charts.hockey import hockey_stick
from iotax.report.charts.layers import families_used, instructions, layers, layers_said, layers_used
from iotax.report.charts.levels import is_sweep, over_levels, ratio_over_levels
from iotax.report.charts.open_loop import achieved_rate, backlog, responses_over_rate
from iotax.report.charts.order import rounds, run_order
from iotax.report.charts.percentiles import PARTS, percentile_curves
from iotax.report.charts.published import published_figures
from iotax.report.charts.ratios import ratio_forest
from iotax.report.charts.search import probes
from iotax.report.charts.shift import shift_functions
from iotax.report.charts.sizing import response_curves

__all__ = [
    "PARTS",
    "Drawing",
    "achieved_rate",
    "around_events",
    "backlog",
    "cost_effects",
    "cost_half_normal",
    "cost_interactions",
    "cost_lines",
    "cost_residuals",
    "cpu_caption",
    "cpu_over_time",
    "cpu_split",
    "factor_effects",
    "factor_title",
    "families_used",
    "flame_graphs",
    "hockey_stick",
    "instructions",
    "is_sweep",
    "latency_around_events",
    "layers",
    "layers_said",
    "layers_used",
    "model_residuals",
    "over_levels",
    "parts_used",
    "percentile_curves",
    "probes",
    "published_figures",
    "ratio_forest",
    "ratio_over_levels",
    "response_curves",
    "responses_over_rate",
    "rounds",
    "run_order",
    "shift_functions",
]
