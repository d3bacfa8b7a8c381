"""Numbers as a person reads them."""

import math

import pytest

from nnlo_lib.report import axis, words
from nnlo_lib.report.tables import Spread


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (words.number(0.012345), "0.01235"),
        (words.number(28211.93), "28,212"),
        (words.number(0), "0"),
        (words.number(math.nan), "–"),
        (words.number(3e-7), "3.00e-07"),
        (words.rounded(28211.93), "28,200"),
        (words.percent(0.0431, 2), "4.3 %"),
        (words.share(0.0004), "< 0.1 %"),
        (words.share(0.6972), "69.7 %"),
        (words.size(999), "999 B"),
        (words.size(1000), "1.00 kB"),
        (words.size(4_107_529_632), "4.11 GB"),
        (words.size(0), "0 B"),
        (words.seconds(8.134), "8.13 s"),
        (words.seconds(5400), "1 h 30 min"),
        (words.plus_minus(Spread(0.96934, 0.00213, 3), 100, "%"), "96.93 ± 0.21 %"),
        (words.plus_minus(Spread(5312.2, 88.4, 3)), "5,312 ± 88"),
        (words.plus_minus(Spread(0.5, math.nan, 1)), "0.5000"),
        (words.plus_minus(Spread(2.0, 0.0, 3)), "2.000 ± 0.000"),
        (words.plus_minus(Spread(math.nan, math.nan, 0)), "–"),
        (words.listing(["a", "b", "c"]), "a, b and c"),
        (words.listing(["a"]), "a"),
        (words.plural(1, "seed"), "1 seed"),
    ],
)
def test_written(written, expected):
    assert written.replace("\u00a0", " ") == expected


def test_axes_are_monotone_and_end_where_they_should():
    made = {
        axis.linear: [0.3, 0.9, 0.5],
        axis.logarithmic: [0.01, 2.0, 0.3],
        axis.accuracy: [0.1, 0.95, 1.0],
        axis.whole: [1, 2, 7],
    }
    for make, values in made.items():
        laid = make(values, 0.0, 100.0)
        places = [laid.place(value) for value in sorted(values)]
        assert places == sorted(places)
        assert (places[0], places[-1]) == pytest.approx((0.0, 100.0))
        assert len(laid.ticks) > 1
        assert all(0 <= place <= 100 for place, _ in laid.ticks)


@pytest.mark.parametrize("values", [[0.5], [0.0], [1.0], [0.98, 0.9801]])
def test_axes_of_hardly_any_range(values):
    for make in (axis.linear, axis.accuracy, axis.whole):
        laid = make(values, 0.0, 100.0)
        assert laid.ticks
        assert all(math.isfinite(laid.place(value)) for value in values)


def test_epochs_are_whole():
    assert [label for _, label in axis.whole([1, 2, 3], 0.0, 300.0).ticks] == ["1", "2", "3"]
