"""Published results that the methods must reproduce."""

import math
from pathlib import Path

import numpy as np
import pytest
import scipy
from scipy.stats import ttest_1samp, ttest_ind

from iotax.analysis import histogram, multiplicity, regression, steady, strata
from iotax.analysis.effects import explained_variation
from iotax.analysis.estimate import Contrast
from iotax.analysis.model import CellModel, Layout
from iotax.analysis.student import fieller
from iotax.analysis.verdict import two_sided_p

# Longley (1967), from NIST: employment; deflator, product, unemployed, armed forces, population, year.
LONGLEY = [
    [60323, 83, 234289, 2356, 1590, 107608, 1947],
    [61122, 88.5, 259426, 2325, 1456, 108632, 1948],
    [60171, 88.2, 258054, 3682, 1616, 109773, 1949],
    [61187, 89.5, 284599, 3351, 1650, 110929, 1950],
    [63221, 96.2, 328975, 2099, 3099, 112075, 1951],
    [63639, 98.1, 346999, 1932, 3594, 113270, 1952],
    [64989, 99, 365385, 1870, 3547, 115094, 1953],
    [63761, 100, 363112, 3578, 3350, 116219, 1954],
    [66019, 101.2, 397469, 2904, 3048, 117388, 1955],
    [67857, 104.6, 419180, 2822, 2857, 118734, 1956],
    [68169, 108.4, 442769, 2936, 2798, 120445, 1957],
    [66513, 110.8, 444546, 4681, 2637, 121950, 1958],
    [68655, 112.6, 482704, 3813, 2552, 123366, 1959],
    [69564, 114.2, 502601, 3931, 2514, 125368, 1960],
    [69331, 115.7, 518173, 4806, 2572, 127852, 1961],
    [70551, 116.9, 554894, 4007, 2827, 130081, 1962],
]


def inverse_of(fit: regression.Fit) -> np.ndarray:
    return np.linalg.pinv(fit.columns, rcond=1e-15)


def standard_errors(fit: regression.Fit) -> np.ndarray:
    inverse = inverse_of(fit)
    return fit.residual_sd * np.sqrt(np.diag(inverse @ inverse.T))


def hc3_errors(fit: regression.Fit) -> np.ndarray:
    """As of MacKinnon and White 1985, from the residuals and leverages that HC2 uses as well."""
    return np.sqrt(np.sum((inverse_of(fit) * (fit.residuals / (1 - fit.leverage))) ** 2, axis=1))


def test_longley_reproduces_nist_and_hc3():
    data = np.array(LONGLEY)
    fit = regression.fit(np.column_stack((np.ones(16), data[:, 1:])), data[:, 0])
    assert fit.coefficients[0] == pytest.approx(-3482258.63459582, rel=1e-7)
    assert standard_errors(fit)[0] == pytest.approx(890420.383607373, rel=1e-7)
    assert fit.residual_sd == pytest.approx(304.854073561965, rel=1e-8)
    robust = {
        "const": 1799477.23,
        "GNPDEFL": 91.11939,
        "GNP": 0.05562399,
        "UNEMP": 0.8221335,
        "ARMED": 0.2987893,
        "POP": 0.3249058,
        "YEAR": 922.8078,
    }
    assert hc3_errors(fit) == pytest.approx(list(robust.values()), rel=1e-6)


def test_line_through_the_origin_reproduces_nist_noint1():
    x = np.arange(60.0, 71.0)
    fit = regression.fit(x[:, None], np.arange(130.0, 141.0))
    assert fit.coefficients[0] == pytest.approx(2.07438016528926, rel=1e-12)
    assert standard_errors(fit)[0] == pytest.approx(0.0165289256198347, rel=1e-10)
    assert fit.residual_sd == pytest.approx(3.56753034006338, rel=1e-10)


def test_prediction_error_of_montgomerys_filtration_model():
    rate = np.array([45, 71, 48, 65, 68, 60, 80, 65, 43, 100, 45, 104, 75, 86, 70, 96], dtype=float)
    a, c, d = (np.array([1.0 if row >> bit & 1 else -1.0 for row in range(16)]) for bit in (0, 2, 3))
    factors = np.column_stack((np.ones(16), a, c, d, a * c, a * d, c * d, a * c * d))
    fit = regression.fit(factors, rate)
    assert fit.sse / fit.residual_df == pytest.approx(22.4375)
    assert fit.press == pytest.approx(718, abs=0.5)


def test_lack_of_fit_of_rs_cars():
    speed = [4, 4, 7, 7, 8, 9, 10, 10, 10, 11, 11, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 16, 16]
    speed += [17, 17, 17, 18, 18, 18, 18, 19, 19, 19, 20, 20, 20, 20, 20, 22, 23, 24, 24, 24, 24, 25]
    stop = [
        2,
        10,
        4,
        22,
        16,
        10,
        18,
        26,
        34,
        17,
        28,
        14,
        20,
        24,
        28,
        26,
        34,
        34,
        46,
        26,
        36,
        60,
        80,
        20,
        26,
        54,
        32,
        40,
    ]
    stop += [32, 40, 50, 42, 56, 76, 84, 36, 46, 68, 32, 48, 52, 56, 64, 66, 54, 70, 92, 93, 120, 85]
    line = regression.fit(np.column_stack((np.ones(50), speed)), stop)
    test = regression.lack_of_fit(speed, stop, line)
    assert (test.df_model, test.df_error) == (17, 31)
    assert test.f_value == pytest.approx(1.23695, abs=5e-6)
    assert test.p == pytest.approx(0.29484, abs=5e-6)
    origin = regression.fit(np.array(speed, dtype=float)[:, None], stop)
    assert origin.coefficients[0] == pytest.approx(2.909132, abs=5e-7)
    assert standard_errors(origin)[0] == pytest.approx(0.1413686, abs=5e-8)
    assert hc3_errors(origin)[0] == pytest.approx(0.1640453, abs=5e-8)


def test_explained_variation_agrees_with_jains_allocation():
    cells = {(0, 0): (15, 18, 12), (1, 0): (45, 48, 51), (0, 1): (25, 28, 19), (1, 1): (75, 75, 81)}
    treatments = [{"a": a, "b": b} for (a, b), runs in cells.items() for _ in runs]
    shares = explained_variation(treatments, [y for runs in cells.values() for y in runs])
    assert [s.factors for s in shares] == [("a",), ("b",), ("a", "b"), ()]
    assert [100 * s.share for s in shares] == pytest.approx([78.88, 15.40, 4.27, 100 * 102 / 7032], abs=0.005)


def test_holm():
    p = [0.001, 0.008, 0.039, 0.041, 0.042, 0.06, 0.074, 0.205]
    adjusted = multiplicity.holm(p)
    assert adjusted[:3] == pytest.approx([0.008, 0.056, 0.234])
    assert adjusted == sorted(adjusted)
    assert multiplicity.holm(p[::-1]) == pytest.approx(adjusted[::-1])


BLOOD = [
    [7.40, 8.50, 7.20, 8.24, 9.84, 8.32],
    [9.76, 8.80, 7.68, 9.36],
    [12.80, 9.68, 12.16, 9.20, 10.55],
]
PLANT_GROWTH = [
    [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14],
    [4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69],
    [6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26],
]


@pytest.mark.parametrize(
    ("groups", "expected"), [(BLOOD, (0.62010, 0.00583)), (PLANT_GROWTH, (0.32270, 0.15349))], ids=["1955", "plants"]
)
def test_dunnett(groups, expected):
    sizes = np.array([len(g) for g in groups])
    means = np.array([np.mean(g) for g in groups])
    df = int(sizes.sum()) - len(groups)
    pooled = math.sqrt(sum(float(np.var(g)) * len(g) for g in groups) / df)
    errors = pooled * np.sqrt(1 / sizes[1:] + 1 / sizes[0])
    share = np.sqrt(sizes[1:] / (sizes[1:] + sizes[0]))
    correlation = np.outer(share, share)
    np.fill_diagonal(correlation, 1.0)
    alone = [two_sided_p(d, se, df) for d, se in zip(means[1:] - means[0], errors, strict=True)]
    assert multiplicity.dunnett(alone, correlation, df) == pytest.approx(expected, abs=1e-3)


def test_dunnett_of_a_vanishing_p_is_at_most_bonferronis():
    adjusted = multiplicity.dunnett([1e-12, 0.5], np.array([[1, 0.5], [0.5, 1]]), 20)
    assert 0 < adjusted[0] <= 2e-12
    assert adjusted[1] > 0.5


def test_tost_of_the_sleep_data():
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    welch = ttest_ind(first, second, equal_var=False)
    assert welch.statistic == pytest.approx(-1.86081, abs=5e-6)
    assert welch.df == pytest.approx(17.7765, abs=5e-5)
    difference = float(np.mean(first) - np.mean(second))
    error = difference / welch.statistic
    # The p-value of two one-sided tests belongs to the interval that just reaches the margin (Schuirmann 1987).
    reaching = Contrast(difference, error, welch.df).interval(1 - 2 * 0.313454)
    assert min(reaching) == pytest.approx(-2, abs=5e-6)


@pytest.mark.parametrize(
    ("rounds", "excursion", "steady_state"),
    [([1000, 1025, 1050, 1075, 1100], 0.09524, True), ([1000, 1026, 1052, 1078, 1106], 0.10034, False)],
)
def test_snia_window(rounds, excursion, steady_state):
    window = steady.snia_window([1.0, 9999.0, *rounds])
    assert window.excursion_ratio == pytest.approx(excursion, abs=5e-6)
    assert window.steady is steady_state


@pytest.mark.parametrize(("percent", "n"), [(95, 72), (99, 368), (99.9, 3688), (99.99, 36887)])
def test_smallest_count_for_a_percentiles_interval(percent, n):
    assert histogram.smallest_count(percent) == n
    for count, known in ((n - 1, False), (n, True)):
        ranks = histogram.LatencyBins(np.arange(1, count + 1), np.ones(count, dtype=np.int64), 0.0)
        assert (ranks.percentile_interval_ns(percent) is not None) is known


def test_stall_from_the_intended_start_shows_the_omission():
    """10,000 operations of 1 ms, then one stall of 100 s; an operation is due every 10 ms."""
    ms = 1_000_000
    naive = histogram.LatencyBins(np.array([ms, 100_000 * ms]), np.array([10_000, 1]), 0.0)
    assert naive.mean_ns() / ms == pytest.approx(10.998, abs=0.003)
    assert naive.percentile_ns(99.99) == ms
    # Operations that were due during the stall wait from their due time: 100 s, 99.99 s, …, 10 ms.
    waited = np.arange(10, 100_001, 10) * ms
    intended = histogram.merge(
        [
            histogram.LatencyBins(np.array([ms]), np.array([10_000]), 0.0),
            histogram.LatencyBins(waited, np.ones(len(waited), dtype=np.int64), 0.0),
        ]
    )
    assert intended.total == 20_000
    assert intended.mean_ns() / 1e9 == pytest.approx(25.003, abs=5e-4)
    assert intended.percentile_ns(75) / 1e9 == pytest.approx(50.004, rel=1e-3)
    assert intended.percentile_ns(99.99) / 1e9 == pytest.approx(100.008, rel=1e-3)


NIST = Path(scipy.__file__).parent / "stats" / "tests" / "data" / "nist_anova"
"""The StRD files that scipy ships; distributions that strip tests from its wheels leave them out."""


@pytest.mark.skipif(not NIST.is_dir(), reason="this scipy comes without its tests' data")
@pytest.mark.parametrize(
    ("name", "certified", "digits"),
    [
        ("SiRstv", 1.18046237440255, 10),
        ("AtmWtAg", 15.9467335677930, 7),
        ("SmLs01", 21, 12),
        ("SmLs02", 201, 12),
        ("SmLs03", 2001, 12),
        ("SmLs04", 21, 8),
        ("SmLs05", 201, 8),
        ("SmLs06", 2001, 8),
        ("SmLs07", 21, 2),
        ("SmLs08", 201, 2),
        ("SmLs09", 2001, 2),
    ],
)
def test_nist_analysis_of_variance(name, certified, digits):
    """Certified F values. In SmLs07 to 09, 13 leading digits are equal, so doubles hold few of the other digits."""
    rows = [line.split() for line in (NIST / f"{name}.dat").read_text().splitlines()[60:] if line.strip()]
    groups = [int(row[0]) for row in rows]
    y = np.array([float(row[1]) for row in rows])
    y -= y[0]
    y -= y.mean()
    model = CellModel(Layout(groups, [1] * len(y)), y)
    test = regression.compare_nested((float(y @ y), len(y) - 1), (model.sse, model.layout.residual_df))
    assert test.f_value == pytest.approx(certified, rel=10.0**-digits)


# Yates 1935: six blocks, three varieties on whole plots, four rates of nitrogen within them.
OATS = {
    "Victory": [
        (111, 130, 157, 174), (61, 91, 97, 100), (68, 64, 112, 86), (74, 89, 81, 122), (62, 90, 100, 116),
        (53, 74, 118, 113),
    ],
    "Golden Rain": [
        (117, 114, 161, 141), (70, 108, 126, 149), (60, 102, 89, 96), (64, 103, 132, 133), (80, 82, 94, 126),
        (89, 82, 86, 104),
    ],
    "Marvellous": [
        (105, 140, 118, 156), (96, 124, 121, 144), (89, 129, 132, 124), (70, 89, 104, 117), (63, 70, 109, 99),
        (97, 99, 119, 121),
    ],
}  # fmt: skip


def test_split_plot_of_yates_oats():
    rows = [
        (variety, nitrogen, block, float(y))
        for variety, plots in OATS.items()
        for block, plot in enumerate(plots)
        for nitrogen, y in enumerate(plot)
    ]
    varieties, cells = [row[0] for row in rows], [row[:2] for row in rows]
    blocks, y = [row[2] for row in rows], np.array([row[3] for row in rows])
    plots = [block * 3 + list(OATS).index(variety) for variety, _, block, _ in rows]
    model = CellModel(Layout(cells, blocks), y)
    whole = strata.whole_plots(model, varieties, list(zip(blocks, plots, strict=True)))

    between = CellModel(Layout(whole.treatments, whole.blocks), whole.means)
    alone = regression.fit(np.column_stack((np.ones(18), between.layout.block_columns)), whole.means)
    variety = regression.compare_nested((alone.sse, alone.residual_df), (between.sse, between.layout.residual_df))
    assert (variety.df_model, variety.df_error) == (2, 10)
    assert variety.f_value == pytest.approx(1.4853, abs=5e-5)

    within = CellModel(Layout(cells, plots), y)
    columns = [_group_columns(labels) for labels in (varieties, [cell[1] for cell in cells])]
    additive = regression.fit(np.hstack((*columns, within.layout.block_columns)), y)
    interaction = regression.compare_nested(
        (additive.sse, additive.residual_df), (within.sse, within.layout.residual_df)
    )
    assert (interaction.df_model, interaction.df_error) == (6, 45)
    assert interaction.f_value == pytest.approx(0.3028, abs=5e-5)
    rates = Layout([row[1] for row in rows], plots)
    without = float(np.sum((y - _group_means(plots, y)) ** 2))
    with_rates = CellModel(rates, y).sse
    error = within.sse / within.layout.residual_df
    assert (without - with_rates) / 3 / error == pytest.approx(37.6857, abs=1e-4)

    parts = strata.variation(model, blocks, whole)
    assert (parts.block, parts.plot, parts.run) == pytest.approx((214.48, 106.06, 177.08), abs=5e-3)


def _group_columns(labels):
    return np.array([[float(label == name) for name in dict.fromkeys(labels)] for label in labels])


def _group_means(groups, y):
    return (np.bincount(groups, y) / np.bincount(groups))[groups]


# R's npk: nitrogen, phosphate, potash and yield in six blocks of four. The three-factor interaction is confounded with
# blocks.
NPK = """
    1 011 49.5 110 62.8 000 46.8 101 57.0
    2 100 59.8 111 58.5 001 55.5 010 56.0
    3 010 62.8 111 55.8 100 69.5 001 55.0
    4 100 62.0 111 48.8 001 45.5 010 44.2
    5 110 52.0 000 51.5 101 49.8 011 48.8
    6 101 57.2 110 59.0 011 53.2 000 56.0
"""


def test_blocked_factorial_of_rs_npk():
    rows = []
    for line in NPK.strip().splitlines():
        block, *pairs = line.split()
        rows += [
            (block, *(2 * int(x) - 1 for x in levels), float(y)) for levels, y in zip(*[iter(pairs)] * 2, strict=True)
        ]
    blocks = np.array([[float(row[0] == b) for b in "123456"] for row in rows])
    n, p, k = (np.array([row[i] for row in rows], dtype=float) for i in (1, 2, 3))
    y = [row[4] for row in rows]
    effects = {"n": n, "p": p, "k": k, "np": n * p, "nk": n * k, "pk": p * k}
    whole = regression.fit(np.column_stack((blocks, *effects.values())), y)
    for name, f_value in {"n": 12.2587, "k": 6.1657, "p": 0.5441}.items():
        rest = [column for other, column in effects.items() if other != name]
        part = regression.fit(np.column_stack((blocks, *rest)), y)
        test = regression.compare_nested((part.sse, part.residual_df), (whole.sse, whole.residual_df))
        assert (test.df_model, test.df_error) == (1, 12)
        assert test.f_value == pytest.approx(f_value, abs=5e-5)


def test_fieller_agrees_with_the_interval_of_a_known_ratio_of_means():
    """Inverts the t test of top - ratio * bottom = 0 at the interval's own limits."""
    rng = np.random.default_rng(5)
    top, bottom = rng.normal(81, 4, 12), rng.normal(41, 3, 12)
    spread = np.cov(top, bottom) / 12
    low, high = fieller(top.mean(), bottom.mean(), (spread[0, 0], spread[1, 1]), spread[0, 1], 11)
    for ratio in (low, high):
        assert ttest_1samp(top - ratio * bottom, 0.0).pvalue == pytest.approx(0.05, abs=1e-9)
