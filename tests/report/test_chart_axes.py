"""The axes of charts: each label stands at the place of its value."""

import itertools
import math

import pytest

from nnlo_lib.report import chart

PLACES = (0.0, 300.0)


def share(label: str) -> float:
    """Return the share that a label of an accuracy axis means."""
    return float(label.removesuffix(" %")) / 100


def test_only_100_percent_is_drawn_at_its_place():
    """One of three seeds reaches 100 %: 99.3 %, 99.5 % and the mean of the seeds are below it."""
    laid = chart.accuracy([0.9, 0.98, 0.99, 1.0], *PLACES)
    tops = [place for place, label in laid.ticks if label == "100 %"]
    assert tops == [pytest.approx(laid.position(1.0))]
    shares = (0.99, 0.993, 0.995, 0.9966, 0.999, 1.0)
    places = [laid.position(value) for value in shares]
    assert all(low + 1 < high for low, high in itertools.pairwise(places))


@pytest.mark.parametrize(
    "values", [[0.1, 1.0], [0.99, 1.0], [0.9999, 1.0], [1.0], [0.97, 0.993], [0.5], [0.3, 0.999]]
)
def test_each_label_of_an_accuracy_axis_stands_at_its_value(values):
    laid = chart.accuracy(values, *PLACES)
    assert laid.ticks
    for place, label in laid.ticks:
        # Labels have four digits.
        low, high = laid.position(share(label) - 5e-7), laid.position(min(share(label) + 5e-7, 1.0))
        assert low - 1 <= place <= high + 1
    assert ("100 %" in [label for _, label in laid.ticks]) == (max(values) == 1)


def test_an_axis_without_100_percent_is_logarithmic_in_the_error():
    laid = chart.accuracy([0.9, 0.999], *PLACES)
    assert laid.position(0.99) == pytest.approx(150)
    assert laid.position(1 - math.sqrt(0.1 * 0.01)) == pytest.approx(75)


def test_ticks_keep_their_distance_and_order():
    for values in ([0.1, 0.99, 1.0], [0.8, 0.9995], [0.99, 1.0]):
        for ends in (PLACES, PLACES[::-1]):
            laid = chart.accuracy(values, *ends)
            shares = [share(label) for _, label in laid.ticks]
            places = sorted(place for place, _ in laid.ticks)
            assert shares == sorted(shares)
            assert all(b - a >= chart.MIN_TICK_GAP for a, b in itertools.pairwise(places))


def test_axes_are_monotone_and_end_where_they_should():
    made = {
        chart.linear: [0.3, 0.9, 0.5],
        chart.logarithmic: [0.01, 2.0, 0.3],
        chart.accuracy: [0.1, 0.95, 1.0],
        chart.integer: [1, 2, 7],
    }
    for make, values in made.items():
        laid = make(values, 0.0, 100.0)
        places = [laid.position(value) for value in sorted(values)]
        assert places == sorted(places)
        assert (places[0], places[-1]) == pytest.approx((0.0, 100.0))
        assert len(laid.ticks) > 1
        assert all(0 <= place <= 100 for place, _ in laid.ticks)


@pytest.mark.parametrize("values", [[0.5], [0.0], [1.0], [0.98, 0.9801]])
def test_axes_of_hardly_any_range(values):
    for make in (chart.linear, chart.accuracy, chart.integer):
        laid = make(values, 0.0, 100.0)
        assert laid.ticks
        assert all(math.isfinite(laid.position(value)) for value in values)


def test_epochs_are_whole():
    assert [label for _, label in chart.integer([1, 2, 3], 0.0, 300.0).ticks] == ["1", "2", "3"]
