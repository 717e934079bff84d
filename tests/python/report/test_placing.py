"""Labels next to points: they never overlap, and avoid points and lines where there is space."""

from iotax.report.charts.placing import Plot


def overlap(one: tuple[float, float], other: tuple[float, float], wide: float, high: float) -> bool:
    return abs(one[0] - other[0]) < wide and abs(one[1] - other[1]) < high


def test_labels_of_points_that_nearly_touch_are_apart():
    points = [(100.0 + 12 * i, 100.0 + 8 * i) for i in range(4)]
    plot = Plot(400, 300, points, [])
    middles = [plot.place(at, 30, 11) for at in points]
    for i, one in enumerate(middles):
        assert not any(overlap(one, other, 30, 11) for other in middles[:i])


def test_a_label_leaves_points_and_lines_free_where_there_is_room():
    at, other = (200.0, 150.0), (215.0, 150.0)
    x, y = Plot(400, 300, [at, other], [[at, (120.0, 150.0)]]).place(at, 30, 11)
    assert y != 150.0  # a point is to its right, a line to its left
    assert abs(x - 200) < 60 and abs(y - 150) < 40


def test_a_label_stays_inside_the_plot():
    for at in [(399.0, 150.0), (1.0, 150.0), (200.0, 299.0), (200.0, 1.0), (399.0, 299.0)]:
        x, y = Plot(400, 300, [at], []).place(at, 40, 12)
        assert 20 <= x <= 380 and 6 <= y <= 294
