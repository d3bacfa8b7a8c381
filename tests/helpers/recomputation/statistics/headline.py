"""Comparison of the headline with recomputed tests: the best run, the other runs, and the speeds."""

import math
from collections import Counter
from itertools import pairwise
from statistics import fmean
from typing import Any

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.quantity import spread
from helpers.recomputation.raw import Job, Trainings, counted
from helpers.recomputation.sections.nodes import node_range
from helpers.recomputation.statistics.family import Comparison, family
from helpers.recomputation.statistics.matrix import difference_text
from helpers.recomputation.statistics.metrics import Metric, compared_metrics, ranking_metric, raw_value

MOST_NAMED = 3  # runs; of more, a sentence gives the number


def check_headline(audit: Audit, raw: Trainings) -> None:
    """Compare the sentences of the first paragraph."""
    line = audit.page.first("header").first("p", "headline")
    metric = ranking_metric(raw)
    if metric:
        _check_quality(audit, line, raw, metric)
    else:
        audit.says(line, "Runs of a GAN are not ranked")
    _check_speed(audit, line, raw)
    _check_interruptions(audit, line, raw)
    early = sum(bool(job.summary["ended_early"]) for job in raw.jobs)
    if early:
        audit.says(line, f"{{}} of {counted(len(raw.jobs), 'training task')} ended early", early)


def best_by_mean(raw: Trainings, metric: Metric) -> str:
    """Return the run with the best mean of a metric."""
    means = {run: fmean(raw_value(metric.column, job) for job in jobs) for run, jobs in raw.runs.items()}
    return (max if metric.larger_is_better else min)(means, key=lambda run: means[run])


def _check_quality(audit: Audit, line: Element, raw: Trainings, metric: Metric) -> None:
    leader = best_by_mean(raw, metric)
    value = spread([raw_value(metric.column, job) for job in raw.runs[leader]])
    order = "highest" if metric.larger_is_better else "lowest"
    template = f"{leader} has the {order} mean {metric.words}: {{}} over {repetitions(raw.runs[leader])}."
    audit.says(line, template, value)
    others = [each for each in family(raw, metric) if leader in (each.run, each.other)]
    _check_list(audit, line, leader, "The run is better than", ".", [e for e in others if e.better == leader])
    undecided = [each for each in others if not each.better and each.test.pairs]
    _check_list(audit, line, leader, "", " cannot be distinguished from it", undecided)
    _check_seeds(audit, line, undecided)
    worse = [each for each in others if each.better not in (leader, "")]
    _check_list(audit, line, leader, "In the training tasks that both have,", "better.", worse)
    single = any(each.kind == "samples" for each in others)
    audit.require(("With a single seed" in line.text) == single, line, f"a verdict on samples: {single}")
    _check_nodes(audit, line, raw.runs[leader], metric)


def _check_list(
    audit: Audit, line: Element, leader: str, before: str, after: str, listed: list[Comparison]
) -> None:
    """Compare the differences of a sentence: `before run (difference ...), run (difference ...) and ... after`."""
    if not listed:
        absent = after if after.endswith("from it") else before
        return audit.require(absent not in line.text, line, f"{absent!r} of no run")
    if len(listed) > MOST_NAMED:
        return audit.says(line, f"{len(listed)} ")
    texts, values = [], []
    for each in listed:
        template, numbers = difference_text(each, each.sign(leader))
        texts.append(f"{each.other if each.run == leader else each.run} (difference {template})")
        values += numbers
    joined = " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
    verb = " is " if len(listed) == 1 else " are "
    end = after if not after.startswith("better") else f"{verb}{after}"
    return audit.says(line, f"{before} {joined}{end}".strip(), *values)


def _check_seeds(audit: Audit, line: Element, undecided: list[Comparison]) -> None:
    """Compare the largest number of further seeds; it is left out if it is unknown for one of the runs."""
    known = undecided and len(undecided) <= MOST_NAMED and all(each.needs_seeds for each in undecided)
    audit.require(bool(known) == ("would be needed" in line.text), line, "the number of further seeds")
    if known:
        more = int(line.text.partition(" cannot be distinguished from it; ")[2].split()[0])
        audit.says(line, f"; {counted(more, 'more seed')} would be needed")
        hardest = min(undecided, key=lambda each: abs(each.test.mean) / each.test.deviation)
        audit.require(hardest.suffices(more), line, f"{more} more seeds are too many or too few")


def _check_nodes(audit: Audit, line: Element, jobs: list[Job], metric: Metric) -> None:
    if "val_accuracy_min" in jobs[0].history[-1]:
        mean, nodes, worst, last = node_range(jobs, metric.column)
        template = "node models is {}, mean over {} nodes (worst {}, best {})"
        audit.says(line, template, mean, nodes, worst, last)


def _check_speed(audit: Audit, line: Element, raw: Trainings) -> None:
    if raw.mixed_clocks:
        return audit.says(line, "Training speeds are not compared")
    means = {run: fmean(job.summary["samples_per_second"] for job in jobs) for run, jobs in raw.runs.items()}
    fast, slow = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    ranks = {run: counted(jobs[0].summary["ranks"], "rank") for run, jobs in raw.runs.items()}
    start = f"{fast} has the highest mean training speed: {{}} samples per second with {ranks[fast]}"
    speed = next(each for each in compared_metrics(raw) if each.column == "samples_per_second")
    [found] = [each for each in family(raw, speed) if {each.run, each.other} == {fast, slow}]
    ratio, values = difference_text(found, found.sign(fast))
    slowest = f"the slowest run, {slow} ({ranks[slow]})"
    template = f"{start}; it cannot be distinguished from that of {slowest}: {ratio} that speed."
    if found.differs:
        template = f"{start}, {ratio} that of {slowest}."
    if math.isnan(found.p_holm):
        template, values = (
            f"{start}, {{}} times that of {slowest}.",
            [float(f"{means[fast] / means[slow]:.3g}")],
        )
    # The sentence rounds the speed to three significant digits.
    return audit.says(line, template, float(f"{means[fast]:.3g}"), *values)


def _check_interruptions(audit: Audit, line: Element, raw: Trainings) -> None:
    """Compare the trainings with an attempt that did not finish, the reasons, and the repeated steps."""
    attempts = [
        job.attempts for job in raw.jobs if any(each["reason"] != "finished" for each in job.attempts)
    ]
    audit.require(
        bool(attempts) == ("interrupted" in line.text), line, f"{len(attempts)} trainings were interrupted"
    )
    if not attempts:
        return None
    reasons = Counter(each["reason"] for its in attempts for each in its if each["reason"] != "finished")
    named = " and ".join(f"{count} × {reason}" for reason, count in reasons.items())
    verb = "was" if len(attempts) == 1 else "were"
    template = f"{{}} of {counted(len(raw.jobs), 'training task')} {verb} interrupted and resumed ({named})"
    return _with_steps(audit, line, template, attempts)


def _with_steps(audit: Audit, line: Element, template: str, attempts: list[list[dict[str, Any]]]) -> None:
    pairs = [pair for its in attempts for pair in pairwise(its)]
    repeated = sum(max(0, each["reached"] - after["from"]) for each, after in pairs)
    if not repeated:
        return audit.says(line, f"{template}; no step was repeated.", len(attempts))
    return audit.says(line, f"{template}; {{}} step", len(attempts), repeated)


def repetitions(jobs: list[Job]) -> str:
    """Return the number of seeds and folds of a run as the page names them."""
    seeds, folds = ({job.summary[key] for job in jobs} - {None} for key in ("seed", "fold"))
    return counted(len(seeds), "seed") + (f" × {counted(len(folds), 'fold')}" if folds else "")
