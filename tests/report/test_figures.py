"""Figures: the drawn quantity of a value, the data of a specification, and colors with enough contrast."""

import gzip
import math
import re

import pandas as pd
import pytest
from helpers import vega_script

from nnlo_lib.report.figure import bar_spec, curve_spec, short_names, value_axis
from nnlo_lib.report.page import TEMPLATES


def test_an_accuracy_is_drawn_by_its_error_and_100_percent_is_finite():
    axis = value_axis("val_accuracy", pd.Series([0.9, 0.98, 1.0]))
    assert [axis.drawn(share) for share in (1.0, 0.98, 0.9)] == pytest.approx([0, 0.02, 0.1])
    scale = axis.encoding["scale"]
    assert (scale["type"], scale["constant"]) == ("symlog", pytest.approx(0.01))
    # Half of 0.02 is added to each error before the logarithm.
    assert axis.places([0, 0.02, 0.1]) == pytest.approx([math.log(each) for each in (0.01, 0.03, 0.11)])


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [0.0], [0.5], [0.963, 0.986], [0.98, 1.0]])
def test_accuracies_that_are_near_have_a_linear_axis_with_ticks_of_vega(values):
    axis = value_axis("accuracy", pd.Series(values))
    assert (axis.note, "type" in axis.encoding["scale"]) == ("", False)
    assert "values" not in axis.encoding["axis"]


def test_bytes_have_their_unit_once():
    parts = pd.DataFrame({"label": ["a", "a"], "part": ["x", "y"], "value": [1.2e8, 1.2e8], "text": "t"})
    bars = bar_spec(parts, ["x", "y"], unit="B")
    assert bars["data"]["columns"]["value"] == [120, 120]
    assert bars["layer"][0]["encoding"]["x"]["axis"]["title"] == "MB"


def test_a_loss_is_logarithmic_only_over_a_wide_positive_range():
    kinds = [value_axis("loss", pd.Series(values)).note for values in ([0.1, 2.0], [1.0, 2.0], [-1.0, 9.0])]
    assert kinds == ["log scale", "", ""]


def test_labels_at_ends_keep_their_distance():
    axis, drawn = value_axis("loss", pd.Series([1.0, 2.0])), pd.Series([1.0, 2.0])
    assert axis.labels_that_fit({0: 1.0, 1: 1.01, 2: 1.5}, drawn) == [0, 2]


def test_the_data_of_bars_are_the_values():
    parts = pd.DataFrame(
        {"label": ["a", "a", "b"], "part": ["x", "y", "x"], "value": [1.0, math.nan, 3.0], "text": "t"}
    )
    columns = bar_spec(parts, ["x", "y"])["data"]["columns"]
    assert (columns["bar"], columns["value"]) == ([0, 0, 1], [1.0, None, 3.0])


def test_long_labels_of_bars_are_on_several_lines():
    name = "a-very-long-name-of-a-run-" * 3
    parts = pd.DataFrame({"label": ["b", name], "part": "x", "value": [1.0, 3.0], "text": "t"})
    spec = bar_spec(parts, ["x"])
    texts = spec["layer"][1]["data"]["columns"]["label"]
    assert [text.replace("\n", "") for text in texts] == ["b", name]
    assert [len(text.split("\n")) for text in texts] == [2, 2]
    assert spec["height"] == 2 * (48 + 28)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a", "b"], ["a", "b"]),
        (["gan-with-penalty-and-rule-1", "gan-with-penalty-and-rule-12"], ["…and-rule-1", "…and-rule-12"]),
        (["a-single-name-that-is-long"], ["a-single-name-that-is-long"]),
        (["one-name-that-is-very-long", "another-name-that-is-long"], ["one-name-that-is-very-long", "another-name-that-is-long"]),
    ],
)  # fmt: skip
def test_long_names_lose_the_words_that_all_have(names, short):
    assert short_names(names) == short


@pytest.mark.parametrize(("count", "hidden"), [(8, []), (9, list(range(9)))])
def test_more_lines_than_colors_are_gray_at_first(count, hidden):
    points = pd.DataFrame(
        {"run": range(count), "job": -1, "epoch": 1, "value": 1.0 + pd.RangeIndex(count), "std": math.nan}
    )
    axis = value_axis("loss", points["value"])
    spec = curve_spec(points, "epoch", "epoch", axis, [f"run-{number}" for number in range(count)])
    assert spec["params"][0] == {"name": "hidden", "value": hidden}
    assert ("condition" in spec["encoding"]["color"]) == bool(hidden)


def test_the_script_of_the_page_is_what_vl_convert_bundles():
    assert gzip.decompress(vega_script.SCRIPT.read_bytes()).decode() == vega_script.vega_script(), (
        "run `make vega`"
    )


def luminance(color):
    """Return the relative luminance of `#rrggbb` by WCAG 2.2."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_each_color_of_a_mark_has_a_contrast_of_3_and_each_text_of_4_5():
    found = re.findall(r":root \{(.*?)\}", (TEMPLATES / "page.css").read_text(), flags=re.S)
    assert len(found) == 2  # light and dark
    for text in found:
        colors = dict(re.findall(r"--([\w-]+): (#\w{6})", text))
        ratios = {
            name: (max(pair) + 0.05) / (min(pair) + 0.05)
            for name, color in colors.items()
            for pair in [(luminance(color), luminance(colors["paper"]))]
        }
        assert [name for name in ratios if name[:4] in ("run-", "part") and ratios[name] < 3] == []
        assert [name for name in ("ink", "soft", "link") if ratios[name] < 4.5] == []
