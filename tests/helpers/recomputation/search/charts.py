"""Recomputation of the charts of a search: best objective so far, learning curves, partial dependence."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import fmean

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.plane import SCALES, Ruler, check_line, check_mark, points, read_ticks, ruler
from helpers.recomputation.raw import counted
from helpers.recomputation.search.study import RawStudy, RawTrial

Value = Callable[[RawTrial], float]


def axes(audit: Audit, chart: Element, horizontal: str = "") -> "tuple[Ruler, Ruler] | None":
    """Return the axes of a chart; `horizontal`: scale of the x axis."""
    xs, ys = read_ticks(audit, chart.first("svg"))
    x, y = ruler(audit, chart, xs, SCALES[horizontal]), ruler(audit, chart, ys, SCALES[_scale(chart)])
    return (x, y) if x and y else None


def _scale(chart: Element) -> str:
    """Return the note on the scale of the y axis, which precedes other notes."""
    note = "".join(each.text for each in chart.first("figcaption").all("small")).partition("; ")[0]
    return note if "scale" in note else ""


def coverage(study: RawStudy) -> str:
    """Return the number of drawn trials and the states of the others, as the page names them."""
    states = Counter(trial.state for trial in study.trials if trial not in study.ranked)
    text = counted(len(study.trials), "trial")
    if states:
        others = " and ".join(f"{count} {state}" for state, count in states.items())
        text = f"{len(study.ranked)} of {text}; without an objective: {others}"
    return text


def _check_coverage(audit: Audit, chart: Element, study: RawStudy) -> None:
    """Compare the note on the number of drawn trials, and on the states of the others."""
    audit.same(
        chart.first("figcaption").first("small"), "; ".join(filter(None, [_scale(chart), coverage(study)]))
    )


def charts_of(audit: Audit, against: str) -> list[Element]:
    """Return the charts of the search with this label of the x axis."""
    figures = audit.page.section("search").all("figure", "search")
    return [each for each in figures if each.first("svg")["aria-label"].endswith(f"against {against}")]


def check_convergence(audit: Audit, study: RawStudy) -> None:
    """Compare the charts of the best objective by trial and by core hours."""
    tried = sorted(study.ranked, key=lambda trial: trial.number)
    by_trial = [(trial.number, trial.objective.mean) for trial in tried if trial.is_complete(trial.last_rung)]
    by_hours = sorted(
        (trial.hours_until(rung), fmean(trial.folds(rung)))
        for trial in tried
        for rung in trial.rungs
        if trial.is_complete(rung)
    )
    hours = sum(trial.core_hours for trial in study.trials)
    for against, place, candidates, end in (
        ("trial", lambda trial: trial.number, by_trial, len(study.trials) - 1),
        ("core hours", lambda trial: trial.hours_until(trial.last_rung), by_hours, hours),
    ):
        [chart] = charts_of(audit, against)
        _check_coverage(audit, chart, study)
        found = axes(audit, chart)
        if found:
            _check_objectives(audit, chart, study, place, *found)
            _check_steps(audit, chart.first("path", "leader"), candidates, end, *found)


def _check_objectives(
    audit: Audit, chart: Element, study: RawStudy, place: Value, x: Ruler, y: Ruler
) -> None:
    marks = {_trial_of(mark): mark for mark in chart.all("circle")}
    audit.require(
        set(marks) == {trial.number for trial in study.ranked}, chart, "a mark per trial with an objective"
    )
    for trial in study.ranked:
        mark = marks[trial.number]
        check_mark(audit, mark, place(trial), trial.objective.mean, x, y)
        template = f"trial {trial.number}: {{}}, {counted(trial.epochs, 'epoch')}, {{}}"
        audit.same(mark.first("title"), template, trial.objective, trial.seconds)
        _check_class(audit, mark, trial, study)


def _trial_of(mark: Element) -> int:
    return int(re.match(r"trial (\d+)", mark.first("title").text)[1])


def _check_class(audit: Audit, mark: Element, trial: RawTrial, study: RawStudy) -> None:
    kind = "best" if trial is study.best else {"finished": "done"}.get(trial.state, trial.state)
    audit.require(mark["class"] == kind, mark, f"trial {trial.number} is {kind}")


def _check_steps(
    audit: Audit, path: Element, candidates: list[tuple[float, float]], end: float, x: Ruler, y: Ruler
) -> None:
    places, values = zip(*candidates, strict=True)
    best = list(accumulate(values, max))
    path.attributes["d"].explain()
    numbers = [float(each) for each in re.findall(r"[-\d.]+", path["d"])]
    expected = [
        number
        for place, value in zip(places, best, strict=True)
        for number in (x.place(place), y.place(value))
    ]
    expected.append(x.place(end))
    same = len(numbers) == len(expected) and all(
        abs(a - b) < 0.8 for a, b in zip(numbers, expected, strict=True)
    )
    audit.require(same, path, f"{numbers} is drawn, recomputed {expected}")


def check_trial_curves(audit: Audit, study: RawStudy) -> None:
    """Compare the learning curve of each trial with the rows of its results."""
    [chart] = charts_of(audit, "epoch")
    _check_coverage(audit, chart, study)
    found = axes(audit, chart)
    lines = {each.first("title").text: each for each in chart.all("g")}
    names = {f"trial {trial.number}" for trial in study.ranked}
    audit.require(set(lines) == names, chart, f"curves of {sorted(names)}, drawn {sorted(lines)}")
    for trial in study.ranked if found else ():
        line = lines[f"trial {trial.number}"]
        audit.same(line.first("title"), f"trial {trial.number}")
        check_line(audit, line.first("path"), trial.curve(), *found)
    _check_ends(audit, chart, study, found)
    _check_single_epochs(audit, study)


def _check_single_epochs(audit: Audit, study: RawStudy) -> None:
    """Compare the number of trials that are a mark without a line."""
    single = sum(len(trial.curve()) == 1 for trial in study.ranked)
    notes = [each for each in audit.page.section("search").all("p", "aside") if "Blue:" in each.text]
    if single:
        verb = "is a mark" if single == 1 else "are marks"
        audit.says(notes[0], f"{counted(single, 'trial')} with a single epoch {verb} without a line")
    audit.require(bool(single) == ("single epoch" in notes[0].text), notes[0], f"{single} single epochs")


def _check_ends(audit: Audit, chart: Element, study: RawStudy, found: "tuple[Ruler, Ruler] | None") -> None:
    stopped = {trial.number: trial for trial in study.ranked if trial.state == "stopped"}
    marks = {_trial_of(mark): mark for mark in chart.all("circle")}
    audit.require(marks.keys() == stopped.keys(), chart, f"marks of the stopped trials {sorted(stopped)}")
    for number in marks.keys() & stopped.keys():
        epoch, value = stopped[number].curve()[-1]
        audit.same(
            marks[number].first("title"),
            f"trial {number} stopped after {counted(int(epoch), 'epoch')}: {{}}",
            value,
        )
        if found:
            check_mark(audit, marks[number], epoch, value, *found)


def check_dependence_marks(audit: Audit, study: RawStudy) -> None:
    """Compare the trials in the charts of partial dependence; the curves belong to the forest."""
    for key, space in study.search["space"].items():
        for chart in charts_of(audit, key):
            choices = study.choices(key)
            found = (
                categories(audit, chart, choices)
                if choices
                else axes(audit, chart, "log scale" if "log" in str(space) else "")
            )
            if found:
                _check_dependence(audit, chart, study, key, choices, *found)


def categories(audit: Audit, chart: Element, choices: Sequence[object]) -> "tuple[Ruler, Ruler] | None":
    """Return the axes of a chart whose x axis has a label per choice."""
    xs, ys = read_ticks(audit, chart.first("svg"))
    audit.require([label for label, _ in xs] == list(map(str, choices)), chart, f"the labels are {choices}")
    x = Ruler(tuple((float(number), place) for number, (_, place) in enumerate(xs)), float)
    y = ruler(audit, chart, ys, SCALES[_scale(chart)])
    return (x, y) if y else None


def _check_dependence(
    audit: Audit,
    chart: Element,
    study: RawStudy,
    key: str,
    choices: "Sequence[object] | None",
    x: Ruler,
    y: Ruler,
) -> None:
    marks = {_trial_of(mark): mark for mark in chart.all("circle")}
    audit.require(
        set(marks) == {trial.number for trial in study.ranked}, chart, "a mark per trial with an objective"
    )
    for trial in study.ranked:
        value = trial.point[key]
        across = choices.index(value) if choices else value
        check_mark(audit, marks[trial.number], across, trial.objective.mean, x, y)
        shown = marks[trial.number].first("title")
        audit.same(shown, f"trial {trial.number}: {{}}, {{}}", value, trial.objective.mean)


def levels(path: Element) -> list[tuple[float, float]]:
    """Return the points of a line, or the middle of a short bar."""
    bar = re.fullmatch(r"M([\d.]+),([\d.]+)H([\d.]+)", path["d"])
    return [((float(bar[1]) + float(bar[3])) / 2, float(bar[2]))] if bar else points(path["d"])
