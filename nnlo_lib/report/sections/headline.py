"""The result in one paragraph, in which only tested differences are called differences."""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from nnlo_lib.core.text_format import plural
from nnlo_lib.report.formatting import MAX_NAMED_RUNS, bold, listing, rounded, task_listing, task_name
from nnlo_lib.report.quantities import TimeBase
from nnlo_lib.report.sections.attempts import interruptions_sentence
from nnlo_lib.report.sections.comparison import Comparisons
from nnlo_lib.report.sections.nodes import node_metric_ranges
from nnlo_lib.report.statistics.comparison_text import difference_text
from nnlo_lib.report.statistics.run_comparison import (
    ComparedMetric,
    RunComparison,
    finite_jobs,
    guessing_sentence,
    ranking_metric,
)
from nnlo_lib.report.tables import first_and_equal, group_by_run, spread_by_run
from nnlo_lib.state.finished_run import SPLIT_NAMES, FinishedRun

DISTRIBUTION = ("algorithm", "topology", "compression", "parallel")  # sections of a run's settings
MIN_TIMED_S = 10  # trainings that are shorter differ by the load of the host

GANS = (
    "Runs of a GAN are not ranked: loss and distance are measured by the critic of each run, and cannot be "
    "compared between runs."
)


def headline(
    table: pd.DataFrame, clock: TimeBase, comparisons: Comparisons, jobs: Sequence[FinishedRun]
) -> Markup:
    """Return the paragraph: guesses, best run, what is known of the others, node models, speeds and interruptions."""
    ranking = ranking_metric(table)
    if ranking is not None:
        sentences = _quality(table, ranking, comparisons[ranking.column])
    elif table["problem"].eq("gan").any():
        sentences = [GANS]
    else:
        sentences = ["No run has a finite test metric that can be compared between the runs."]
    if guesses := guessing_sentence(jobs):
        marked = re.sub("`(.+?)`", r"<code>\1</code>", str(escape(guesses)))
        sentences.insert(0, f"<b>Warning:</b> {marked}")
    sentences.append(_speeds(table, clock, comparisons.get("samples_per_second", []), jobs))
    if ended := table["ended_early"].count():
        sentences.append(
            f"{ended} of {plural(len(table), 'training task')} ended early because a stopping rule applied."
        )
    # Markup is safe here: names come from the user, and `bold` and `escape` escape them.
    return Markup(" ".join(filter(None, [*sentences, interruptions_sentence(jobs)])))


def _quality(table: pd.DataFrame, metric: ComparedMetric, comparisons: Sequence[RunComparison]) -> list[str]:
    values = spread_by_run(table, metric.column)
    equal = first_and_equal(values, bool(metric.highest))
    best, lost = equal[0], _not_finite(table, metric)
    value = f"{metric.mean_text(values[best])} over {_measured_repetitions(table, metric, best)}"
    nodes = ""
    if best in (found := node_metric_ranges(table, metric.name)):
        nodes = (
            f"Each node of {bold(best)} has its own model; the averaged model gave the test result. "
            f"The validation {metric.name} of the node models is {found[best]}."
        )
    if table["run"].nunique() == 1:
        return [f"{bold(best)} has a mean {metric.words} of {value}.", lost, nodes]
    others = [each for each in comparisons if best in (each.run, each.other)]
    beaten = [each for each in others if each.better == best]
    undecided = [
        each
        for each in others
        if each.better is None and each.test.pairs and not {each.run, each.other} <= set(equal)
    ]
    better = [each for each in others if each.better not in (best, None)]
    sentences = [
        f"{_have(equal)} the {'highest' if metric.highest else 'lowest'} mean {metric.words}: {value}."
    ]
    if len(beaten) > MAX_NAMED_RUNS:
        sentences.append(f"The run is better than {len(beaten)} of {len(others)} other runs.")
    elif beaten:
        sentences.append(f"The run is better than {_differences(best, beaten)}.")
    if not metric.chose_weights(table.to_dict("records")):
        sentences.append(_undecided(best, undecided))
    if better:
        are = "is" if len(better) == 1 else "are"
        sentences.append(f"In the training tasks that both have, {_differences(best, better)} {are} better.")
    if any(each.method == "samples" for each in others):
        sentences.append(
            "With a single seed, verdicts are about these trained models on the test samples, not about other seeds."
        )
    return [*sentences, _chosen_weights(table, metric), lost, nodes]


def _have(runs: Sequence[str]) -> str:
    """Return subject and verb of a sentence: `a has`, `a and b share`, `4 runs share`."""
    if len(runs) > MAX_NAMED_RUNS:
        return f"{len(runs)} runs share"
    return f"{_bold(runs)} {'has' if len(runs) == 1 else 'share'}"


def _bold(names: Iterable[str]) -> str:
    return listing([bold(name) for name in dict.fromkeys(names)])


def _chosen_weights(table: pd.DataFrame, metric: ComparedMetric) -> str:
    """Return a sentence on runs whose weights were chosen by validation samples, if this affects the comparison."""
    chosen = table[table["weights_chosen_by"].notna()]
    if chosen.empty:
        return ""
    keys = dict.fromkeys(key for text in chosen["weights_chosen_by"] for key in text.split(", "))
    rules = f"{listing([f'train.{key}' for key in keys])} of {_bold(chosen['run'])}"
    if metric.chose_weights(table.to_dict("records")):
        return (
            f"No run is called better: {rules} chose the weights by the samples of this comparison, whose "
            f"{metric.words} is therefore too good; a test split decides instead."
        )
    if table["fold"].isna().any():
        return ""
    one_seed = "; a verdict needs more than one seed" if table["seed"].nunique() == 1 else ""
    where = f"the weights on the validation folds{one_seed}."
    return f"Compared on the test split, seed by seed, because {rules} chose {where}"


def _undecided(best: str, undecided: Sequence[RunComparison]) -> str:
    """Return a sentence on the runs that no test distinguishes from the best one, and the seeds that it would take."""
    if not undecided:
        return ""
    if len(undecided) > MAX_NAMED_RUNS:
        return f"{len(undecided)} runs cannot be distinguished from it."
    seeds = [each.more_seeds for each in undecided]
    needed = f"; {plural(max(filter(None, seeds)), 'more seed')} would be needed" if all(seeds) else ""
    needed = needed or "".join(f"; {why}" for why in sorted({each.untested for each in undecided} - {""}))
    return f"{_differences(best, undecided)} cannot be distinguished from it{needed}."


def _differences(best: str, comparisons: Sequence[RunComparison]) -> str:
    """Return the other runs of some comparisons, each with its difference from the best one."""
    return listing([
        f"{bold(each.other if each.run == best else each.run)} "
        f"(difference {difference_text(each.metric, each.test, 1 if each.run == best else -1)})"
        for each in comparisons
    ])  # fmt: skip


def _measured_repetitions(table: pd.DataFrame, metric: ComparedMetric, run: str) -> str:
    """Return the repetitions of a run's mean: `3 seeds`; `2 of 3 seeds` if a seed has no finite value."""
    rows, (finite, planned) = table[table["run"] == run], finite_jobs(table, metric, run)
    if finite == planned:
        return repetitions(rows)
    if rows["fold"].notna().any():
        return f"{finite} of {plural(planned, 'fold')} ({repetitions(rows)})"
    return f"{finite} of {repetitions(rows)}"


def _not_finite(table: pd.DataFrame, metric: ComparedMetric) -> str:
    """Return a sentence that names the training tasks whose metric is NaN or infinite."""
    lost = table[~np.isfinite(table[metric.column].astype(float))]
    names = [
        task_name(bold(row["run"]), row["seed"], row["fold"])
        + ("" if pd.isna(row["ended_early"]) else f" (ended early: {row['ended_early']})")
        for row in lost.to_dict("records")
    ]
    return f"Without a finite {metric.words}, and not in the means: {task_listing(names)}." if names else ""


def _speeds(
    table: pd.DataFrame, clock: TimeBase, comparisons: Sequence[RunComparison], jobs: Sequence[FinishedRun]
) -> str:
    """Return a sentence on the fastest and the slowest run, by the tests of the speed of each pair of runs.

    It is empty if the runs are distributed alike, or if one is too short for a time that says something about it.
    """
    if clock.mixed:
        return "Training speeds are not compared: some runs have a measured clock, others a virtual clock."
    own = [list(map(group[0].config_section, DISTRIBUTION)) for group in group_by_run(jobs).values()]
    shortest = min(spread.mean for spread in spread_by_run(table, "seconds").values())
    is_noise = shortest < MIN_TIMED_S and not all(job.has_virtual_seconds for job in jobs)
    if is_noise or all(each == own[0] for each in own):
        return ""
    speeds = spread_by_run(table, "samples_per_second")
    ranked = sorted(speeds, key=lambda run: speeds[run].mean, reverse=True)
    ranks = {run: plural(count, "rank") for run, count in table.groupby("run")["ranks"].first().items()}
    fast, slow = ranked[0], ranked[-1]
    rate = f"{rounded(speeds[fast].mean)} samples per {f'{clock.word} second'.strip()}"
    if len(equal := first_and_equal(speeds, highest=True)) == len(ranked):
        return f"All runs have the same mean training speed: {rate}."
    first = f"{_have(equal)} the highest mean training speed: {rate} with {ranks[fast]}"
    [comparison] = [each for each in comparisons if {each.run, each.other} == {fast, slow}]
    slowest = f"the slowest run, {bold(slow)} ({ranks[slow]})"
    if not math.isfinite(comparison.p_holm):
        ratio = rounded(speeds[fast].mean / speeds[slow].mean)
        single = "the runs share a single training task" if comparison.test.pairs == 1 else ""
        why = comparison.untested or single
        return f"{first}, {ratio} times that of {slowest}{f' (not tested: {why})' if why else ''}."
    ratio = difference_text(comparison.metric, comparison.test, 1 if comparison.run == fast else -1)
    if comparison.differs:
        return f"{first}, {ratio} that of {slowest}."
    return f"{first}; it cannot be distinguished from that of {slowest}: {ratio} that speed."


def repetitions(table: pd.DataFrame) -> str:
    """Return the number of repetitions of a mean: `3 seeds` or `3 seeds × 5 folds`."""
    seeds, folds = table["seed"].nunique(), table["fold"].nunique()
    return plural(seeds, "seed") + (f" × {plural(folds, 'fold')}" if folds else "")


def test_split_sentence(splits: Sequence[str]) -> str:
    """Return a sentence on the samples that replace a missing test split, or an empty string."""
    named = listing([SPLIT_NAMES[name] for name in splits if name != "test"] or [""])
    if not named:
        return ""
    first = f"If the data of a run have no test split, “test” refers to {named}."
    if len(splits) == 1:
        first = f"The data have no test split: results were measured on {named}."
    return f"{first} Such results are optimistically biased if validation metrics were used to choose settings or epochs."
