"""Recomputation of the timeline of the fold tasks."""

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.search.study import RawStudy, RawTrial, Task, seconds


def check_lanes(audit: Audit, study: RawStudy) -> None:
    """Compare the segments of the timeline, without the pauses of the whole search, and the sentence on costs."""
    section = audit.page.section("search")
    parts, tasks = section.first("div", "lanes").all("i"), list(study.tasks.items())
    busy = _Union([(result["started"], result["ended"]) for _, result in tasks])
    lanes: list[float] = []
    for part, (task, result) in zip(parts, tasks, strict=True):
        lane = next((n for n, until in enumerate(lanes) if until <= result["started"] + 1e-3), len(lanes))
        lanes[lane : lane + 1] = [result["ended"]]
        _check_segment(audit, part, task, result, busy, lane)
        kind = (
            "failed"
            if result["status"] != "finished"
            else "best"
            if task[0] == study.best.number
            else f"turn-{task[0] % 2}"
        )
        audit.require(part["class"] == kind, part, f"the segment is {kind}")
    section.first("div", "lanes").attributes["style"].explain()
    audit.require(
        section.first("div", "lanes")["style"] == f"--lanes:{len(lanes)}", section, f"{len(lanes)} lanes"
    )
    attempts = [span for _, result in tasks for span in result["earlier"]]
    _check_costs(audit, section, study, _Union([*busy.intervals, *attempts]).total, len(lanes))


def _check_segment(audit: Audit, part: Element, task: Task, result: dict, busy: "_Union", lane: int) -> None:
    trial, fold, epochs = task
    template = f"trial {trial}, fold {fold}, to epoch {epochs}: {{}}, {result['status']}"
    audit.attribute(part, "title", template, seconds(result))
    start, end = busy.before(result["started"]), busy.before(result["ended"])
    audit.percentage(part, "left", start / busy.total)
    audit.percentage(part, "width", (end - start) / busy.total)
    audit.require(f"--l:{lane};" in part["style"], part, f"the lane is {lane}")
    style = part.attributes["style"]
    style.explain(0, style.value.index(";") + 1)


class _Union:
    """The time in which at least one of some intervals ran."""

    def __init__(self, intervals: list[tuple[float, float]]) -> None:
        self.intervals, self.parts = intervals, list[list[float]]()
        for start, end in sorted(intervals):
            if self.parts and start <= self.parts[-1][1]:
                self.parts[-1][1] = max(self.parts[-1][1], end)
            else:
                self.parts.append([start, end])
        self.total = self.before(float("inf"))

    def before(self, moment: float) -> float:
        """Return the seconds of the union before a moment."""
        return sum(min(end, moment) - start for start, end in self.parts if start < moment)


def _check_costs(audit: Audit, section: Element, study: RawStudy, wall: float, lanes: int) -> None:
    note = next(each for each in section.all("p", "aside") if "core hours in" in each.text)
    hours = sum(trial.core_hours for trial in study.trials)
    slots = max(study.search["parallel"], lanes)
    counted = f"{slots} (search.parallel)" if slots == study.search["parallel"] else f"{slots} slots"
    busy = sum(seconds(result) for result in study.tasks.values())
    template = f"{{}} core hours in {{}}. Fold tasks used {{}} of {counted} × wall time"
    audit.says(note, template, hours, wall, busy / (slots * wall))
    trained = sum(_trained(trial, task) for trial in study.trials for task in trial.results)
    audit.says(note, "spent {} of their time in epochs", trained / busy)


def _trained(trial: RawTrial, task: Task) -> float:
    """Return the seconds in the epochs of a fold task; a promoted fold continues the clock of the rung below."""
    below = [each for each in trial.results if each[1] == task[1] and each[2] < task[2]]
    ends = [
        trial.results[each]["rows"][-1]["seconds"] for each in (task, *below) if trial.results[each]["rows"]
    ]
    return ends[0] - max(ends[1:], default=0.0) if trial.results[task]["rows"] else 0.0
