"""Figures of the report as Vega-Lite specifications, each with a text alternative and a table of its values.

Vega draws SVG whose colors are CSS variables, so dark mode and print follow the style sheet; its interpreter of expressions
needs no `eval`, which the page's policy forbids. Interaction between figures is in templates/page.js.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from nnlo_lib.core.text_format import BYTE_UNITS, number, size_text
from nnlo_lib.report.formatting import percent

Spec = dict[str, Any]  # (part of) a Vega-Lite specification
# Ticks of an accuracy axis: from 80 % on, their errors form a 1-2-5 series, which a logarithm spaces evenly.
SHARES = (0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 1)
LOG_SCALE_MIN_RATIO = 8  # ratio of largest to smallest value above which the axis is logarithmic
# Vega's `tickMinStep` of 1 gives a tick at each half of three epochs.
WHOLE_TICKS = {"tickCount": {"signal": "clamp(floor(span(domain('x'))), 1, 10)"}}
FEW_TICKS = 5  # asked of Vega, which makes 3 to 8 at round values
DIGITS = ",.4~r"  # format of an axis: without powers of ten
COLORS = 8  # colors of runs and of parts in page.css
SOFT = "var(--soft)"
DASHES = ([1, 0], [6, 4], [2, 4], [9, 3, 2, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")
MIN_LABEL_GAP = 0.07  # of the height, between two labels at the ends of lines
MAX_LABELS = 8
MAX_LABEL_LETTERS, LETTER_WIDTH = 18, 6.4  # of a label at the end of a line; pixels
MAX_ROW_LETTERS = 48  # of a line above a bar, which fit into 360 pixels
IS_MEAN = {"filter": "datum.job < 0"}
VISIBLE = {"filter": "indexof(hidden, datum.run) < 0"}
# The wheel scrolls the page; with Shift or Ctrl it zooms.
ZOOM = {
    "name": "zoom",
    "select": {"type": "interval", "zoom": "wheel![event.shiftKey || event.ctrlKey]"},
    "bind": "scales",
}


@dataclass(frozen=True)
class Figure:
    """A figure: a note on the scale, a sentence as text alternative, and a table of values unless another table has them."""

    title: str
    note: str
    text: str
    spec: Spec
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    @property
    def json(self) -> Markup:
        """The specification as the text of a script element."""
        # `<` could end the element; names come from the user.
        return Markup(json.dumps(self.spec, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def inline_data(table: pd.DataFrame) -> Spec:
    """Return a table as the data of a specification, by columns, numbers with five digits; page.js makes rows of it."""
    return {"columns": {str(name): [_short(value) for value in table[name]] for name in table}}


def _short(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


@dataclass(frozen=True)
class ValueAxis:
    """A y axis: the encoding, a note on the scale, the drawn quantity of a value, and the format of a value."""

    encoding: Spec
    note: str
    drawn: Callable[[Any], Any]
    format_value: Callable[[float], str]

    def places(self, drawn: "Sequence[float] | pd.Series[float]") -> NDArray[np.float64]:
        """Return drawn values as places on a linear scale."""
        scale, values = self.encoding.get("scale", {}), np.asarray(drawn, dtype=float)
        has_log, shift = "log" in scale.get("type", ""), scale.get("constant", 0.0)
        places: NDArray[np.float64] = np.log(values + shift) if has_log else values
        return places

    def labels_that_fit(self, ends: Mapping[int, float], drawn: "pd.Series[float]") -> list[int]:
        """Return the runs whose labels fit beside `ends`, the last drawn values; all of them give the height of the figure."""
        places = dict(zip(ends, self.places([*ends.values()]), strict=True))
        apart, kept = MIN_LABEL_GAP * np.ptp(self.places(drawn.dropna())), list[int]()
        for run, place in places.items():
            if len(kept) < MAX_LABELS and all(abs(place - places[other]) >= apart for other in kept):
                kept.append(run)
        return kept


def value_axis(metric: str, values: "pd.Series[float]", channel: str = "y") -> ValueAxis:
    """Return the axis for values of a metric: linear, logarithmic, or for accuracies logarithmic in the error.

    With an accuracy of 1, half of the smallest other error is added to every error, because the logarithm of 0 is
    infinite: `symlog` is the logarithm of a value plus its constant.
    """
    low, high = float(values.min()), float(values.max())
    axis: Spec = {"title": None}
    if metric.endswith("accuracy") and low >= 0 and high <= 1:
        least = float((1 - values[values < 1]).min())  # NaN if all are 1
        shift = least * (0.5 if high == 1 else 1e-6)
        scale: Spec = {"reverse": True, "zero": False, "nice": False}
        axis["labelExpr"] = 'format(100 * (1 - datum.value), ".4~g") + " %"'
        if is_log := 1 - low + shift > LOG_SCALE_MIN_RATIO * (1 - high + shift):
            scale |= {"type": "symlog", "constant": shift}
            errors = [round(1 - share, 4) for share in SHARES]
            # A zoomed axis, which may have none of these, gets ticks of Vega.
            ends = [f"(domain('{channel}')[{end}] + {shift!r})" for end in (0, 1)]
            axis["values"] = {"signal": f"{ends[1]} > {LOG_SCALE_MIN_RATIO} * {ends[0]} ? {errors} : null"}
        note, drawn, write = "log scale of the error", lambda share: 1 - share, percent
    else:
        axis["format"], is_log = ".4~g", low > 0 and high / low > LOG_SCALE_MIN_RATIO
        scale = {"type": "log", "nice": False} if is_log else {"zero": False}
        note, drawn, write = "log scale", lambda value: value, number
    axis |= {"labelOverlap": "greedy"} if is_log else {"tickCount": FEW_TICKS}
    return ValueAxis({"scale": scale, "axis": axis}, note if is_log else "", drawn, write)


def quantitative(field: str, **more: Any) -> Spec:
    """Return the encoding of a column of numbers."""
    return {"field": field, "type": "quantitative", **more}


def layer(kind: str, encoding: Spec, *filters: Spec, **mark: Any) -> Spec:
    """Return a layer with marks of a kind, for the rows that pass the filters."""
    return {"transform": list(filters), "mark": {"type": kind, **mark}, "encoding": encoding}


def panel(table: pd.DataFrame, layers: Sequence[Spec], height: int, **more: Any) -> Spec:
    """Return a specification of layers over the same rows, as wide as the page."""
    return {"data": inline_data(table), "layer": list(layers), "width": "container", "height": height, **more}


def value_if(test: str | Spec, value: Any, otherwise: Any) -> Spec:
    """Return an encoding with two values."""
    return {"condition": {"test": test, "value": value}, "value": otherwise}


def name_of_run(names: Sequence[str]) -> Spec:
    """Return the transform that adds the name of the run to each row."""
    return {"calculate": f"({json.dumps(list(names))})[datum.run]", "as": "name"}


def run_styles(names: Sequence[str]) -> dict[str, Spec]:
    """Return color, dash and marker of each run, by its number; the legend names the runs in a downloaded figure."""
    numbers = list(range(len(names)))
    width = f"{LETTER_WIDTH * max(map(len, names)) + 40:.0f}"
    legend = {
        "labelExpr": f"({json.dumps(list(names))})[datum.value]",
        "title": None,
        "orient": "top",
        "symbolOpacity": 1,
        "columns": {"signal": f"max(1, floor(width / {width}))"},
    }
    channels = {
        "color": [f"var(--run-{place % COLORS})" for place in numbers],
        "strokeDash": [DASHES[place // COLORS % len(DASHES)] for place in numbers],
        "shape": [SHAPES[place % len(SHAPES)] for place in numbers],
    }
    shared = {"field": "run", "type": "nominal", "legend": legend}
    return {
        channel: {**shared, "scale": {"domain": numbers, "range": looks}}
        for channel, looks in channels.items()
    }


def curve_spec(
    points: pd.DataFrame,
    against: str,
    x_title: str,
    y: ValueAxis,
    names: Sequence[str],
    band: bool = False,
    clock: str = "time (s)",
) -> Spec:
    """Return a specification with a line per run, zoom and labels at the ends.

    `points`: columns `run` (number), `job` (-1: the mean), `x`, `value`, `std`, and others for the tooltip, in which `clock`
    names the column `seconds`; `band`: whether one standard deviation around the mean is shaded.
    """
    # More lines than colors are gray until the legend or the pointer selects them.
    is_muted = len(names) > COLORS
    is_lit = "datum.run == lit"
    is_strong = f"{is_lit} || indexof(hidden, datum.run) < 0" if is_muted else f"lit < 0 || {is_lit}"
    styles = run_styles(names)
    if is_muted:
        plain = {"color": SOFT, "strokeDash": [1, 0], "shape": "circle"}
        styles = {
            channel: {"condition": {"test": is_strong, **style, "legend": None}, "value": plain[channel]}
            for channel, style in styles.items()
        }
    table = points.assign(y=y.drawn(points["value"]))
    means = table[table["job"] < 0]
    ends = means.groupby("run", sort=False).last()
    fits = ends.index.isin(y.labels_that_fit(dict(ends["y"]), table["y"]))
    short = short_names(names)
    ends = ends[[against, "y"]].reset_index().assign(name=[short[run] for run in ends.index], fits=fits)
    label_width = LETTER_WIDTH * min(MAX_LABEL_LETTERS, max(map(len, ends["name"]))) + 8
    y_encoding = quantitative("y", **y.encoding)

    spread: list[Spec] = []
    if band:
        low, high = points["value"].min(), points["value"].max()
        table["low"] = y.drawn((points["value"] - points["std"]).clip(low, high))
        table["high"] = y.drawn((points["value"] + points["std"]).clip(low, high))
        area = {"y": {**y_encoding, "field": "low"}, "y2": {"field": "high"}, "opacity": {"value": 0.16}}
        spread = [layer("area", area, IS_MEAN, clip=True)]
    elif (table["job"] >= 0).any():
        single = {"detail": {"field": "job"}, "opacity": value_if(is_lit, 0.6, 0.3)}
        spread = [layer("line", single, {"filter": "datum.job >= 0"}, clip=True, strokeWidth=1)]
    line = {
        "strokeDash": styles["strokeDash"],
        "opacity": value_if(is_strong, 1, 0.4 if is_muted else 0.12),
        "strokeWidth": value_if(is_strong, 2.2, 1.3),
    }
    has_few_points = len(means) <= 12 * max(1, means["run"].nunique())
    shown = [{"param": "near", "empty": False, "value": 1}, {"test": f"!({is_strong})", "value": 0}]
    # The datum of the cell around a point is the point; Vega-Lite does not look into it for names, only for numbers.
    datum = "(datum.datum || datum)"
    tips = [
        f"{json.dumps(clock if name == 'seconds' else name)}: format({datum}.{name}, '.4~g')"
        for name in ("epoch", "seconds", "value", "std")
        if name in table and table[name].notna().any()
    ]
    marker = {
        "shape": styles["shape"],
        "tooltip": {"value": {"expr": f"{{run: {datum}.name, {', '.join(tips)}}}"}},
        "opacity": {"condition": shown, "value": 0.9 if has_few_points else 0},
    }
    near = {"type": "point", "on": "pointermove", "nearest": True, "clear": "pointerout"}
    zoom = {"params": [ZOOM, {"name": "near", "select": near}]}
    visible = [] if is_muted else [VISIBLE]
    has_place = "lit < 0 && datum.fits" + (f" && length(hidden) == {len(names)}" if is_muted else "")
    is_labeled = f"({has_place}) || {is_strong if is_muted else is_lit}"
    label = {"text": {"field": "name"}, "opacity": value_if(is_labeled, 1, 0)}
    layers = [
        *spread,
        layer("line", line, IS_MEAN, clip=True),
        layer("point", marker, IS_MEAN, clip=True, filled=True, size=36) | zoom,
        layer("text", label, *visible, align="left", dx=6, limit=label_width) | {"data": inline_data(ends)},
    ]
    is_time, ends_at = against != "epoch", {"rangeMax": {"expr": f"width - {label_width:.0f}"}}
    ticks = {"format": DIGITS, "tickCount": FEW_TICKS} if is_time else WHOLE_TICKS
    scale: Spec = {"domainMin": 0, "padding": 0} if is_time else {"zero": False, "nice": False}
    x: Spec = {"scale": scale | ends_at, "axis": {"title": x_title, **ticks}}
    return panel(
        table, layers, 240,
        params=run_params(len(names) if is_muted else 0), transform=[*visible, name_of_run(names)],
        encoding={"x": quantitative(against, **x), "y": y_encoding, "color": styles["color"]},
        usermeta={"x": against, "muted": is_muted},
    )  # fmt: skip


def run_params(hidden: int = 0) -> list[Spec]:
    """Return the parameters that page.js sets in all figures of runs, with the first `hidden` runs hidden."""
    return [{"name": "hidden", "value": list(range(hidden))}, {"name": "lit", "value": -1}]


def short_names(names: Sequence[str]) -> list[str]:
    """Return names without the words with which all of them begin, if one is too long for the end of a line."""
    longest = max(map(len, names))
    if longest <= MAX_LABEL_LETTERS or len(names) == 1:
        return list(names)
    ends = [place for place, letter in enumerate(names[0], 1) if letter in "-_ ./"]
    starts = [place for place in ends if all(name.startswith(names[0][:place]) for name in names)]
    start = next((each for each in starts if longest - each < MAX_LABEL_LETTERS), starts[-1] if starts else 0)
    return [f"…{name[start:]}" if start else name for name in names]


def bar_spec(parts: pd.DataFrame, order: Sequence[str], unit: str = "", axis_format: str = DIGITS) -> Spec:
    """Return a specification of stacked bars, each below its label, so that no name is cut.

    `parts`: columns `label`, `part`, `value` and `text`, the tooltip, in the order of the bars; `order` of the parts gives
    their colors; `unit`, the title of the axis: `B` becomes the unit of the largest sum, such as `MB`.
    """
    if unit == "B":
        unit = size_text(parts.groupby("label")["value"].sum().max()).split()[-1]
        parts = parts.assign(value=parts["value"] / 1000 ** BYTE_UNITS.index(unit))
    labels = list(dict.fromkeys(parts["label"]))
    table = parts.assign(bar=parts["label"].map(labels.index), turn=range(len(parts)))
    colors = [f"var(--part-{place % COLORS})" for place in range(len(order))]
    scale = {"domain": list(order), "range": colors}
    legend = {"title": None, "orient": "top", "columns": {"signal": "max(1, floor(width / 105))"}}
    axis = {"title": unit or None, "format": axis_format, "tickCount": FEW_TICKS}
    bar = {
        "x": quantitative("value", scale={"padding": 0, "domainMin": 0}, axis=axis),
        "color": {"field": "part", "scale": scale, "legend": legend if len(order) > 1 else None},
        "order": {"field": "turn"},
        "tooltip": [
            {"field": "label", "title": "bar"},
            {"field": "part"},
            {"field": "text", "title": "value"},
        ],
    }
    bars = layer("bar", bar, height=20, stroke="var(--paper)", strokeWidth=1)
    return _rows_spec(table, "bar", labels, [bars], 48, -11)


def dot_spec(points: pd.DataFrame, axis: Spec) -> Spec:
    """Return a specification of one row of dots per label, with a tick at the mean; `axis`: encoding of the drawn values.

    `points`: columns `label`, `color` (number of a run), `value`, `y` (drawn value), and `mean` (drawn mean).
    """
    labels = list(dict.fromkeys(points["label"]))
    colors = {"domain": list(range(COLORS)), "range": [f"var(--run-{place})" for place in range(COLORS)]}
    color = {"field": "color", "type": "nominal", "scale": colors, "legend": None}
    tips = [{"field": "label", "title": "name"}, {"field": "value", "format": ".5~g"}]
    dot = {"x": quantitative("y", **axis), "color": color, "tooltip": tips}
    tick = {"x": quantitative("mean", **axis), "color": color}
    layers = [
        layer("point", dot, filled=True, size=50, opacity=0.6),
        layer("tick", tick, thickness=3, size=18),
    ]
    return _rows_spec(points.assign(row=points["label"].map(labels.index)), "row", labels, layers, 42, -9)


def _rows_spec(
    table: pd.DataFrame, row: str, labels: Sequence[str], layers: Sequence[Spec], height: int, dy: int
) -> Spec:
    """Return a specification of rows of a height, each below its label; long labels are on several lines."""
    lines = [wrap(label, MAX_ROW_LETTERS) for label in labels]
    most = max(map(len, lines), default=1)
    texts = ["\n".join([""] * (most - len(each)) + each) for each in lines]
    place = {"baseline": "bottom", "lineBreak": "\n", "lineHeight": 14, "dy": dy - 14 * (most - 1)}
    text = layer("text", {"x": {"value": 0}, "text": {"field": "label"}}, align="left", fontSize=12, **place)
    text["data"] = inline_data(pd.DataFrame({row: range(len(labels)), "label": texts}))
    # Twice the height of the lines, because rows are centered.
    height = (height + 28 * (most - 1)) * len(labels)
    y = {"field": row, "type": "ordinal", "axis": None}
    return panel(table, [*layers, text], height, encoding={"y": y})


def thinned(rows: Iterable[Any], most: int) -> list[Any]:
    """Return at most `most` evenly spaced elements, including the last."""
    known = list(rows)
    places = np.unique(np.linspace(0, len(known) - 1, min(len(known), most)).round().astype(int))
    return [known[place] for place in places]
