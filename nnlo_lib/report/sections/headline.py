"""The result in one paragraph: best run, differences, node models, speeds and interruptions.

Only tested differences are reported as differences.
"""

import math
from collections.abc import Collection, Sequence

import pandas as pd
from markupsafe import Markup

from nnlo_lib.report.formatting import MAX_NAMED_RUNS, bold, listing, percent, plural, plus_minus, rounded
from nnlo_lib.report.quantities import TimeBase
from nnlo_lib.report.sections.comparison import Comparisons
from nnlo_lib.report.sections.predictions import node_metric_ranges
from nnlo_lib.report.statistics.comparison_text import difference_text
from nnlo_lib.report.statistics.run_comparison import (
    ComparedMetric,
    RunComparison,
    finite_jobs,
    ranking_metric,
)
from nnlo_lib.report.tables import Spread, spread_by_run


def headline(
    table: pd.DataFrame, clock: TimeBase, comparisons: Comparisons, interruptions: str = ""
) -> Markup:
    """Return the paragraph: best run, what is known of the others, node models, speeds and interruptions.

    Args:
        table: summary with one row per job.
        comparisons: tests of each pair of runs by column of the summary.
        interruptions: sentence on interrupted attempts; if empty, the restarts in `table` are counted.
    """
    ranking = ranking_metric(table)
    quality = _unranked(table) if ranking is None else _quality(table, ranking, comparisons[ranking.column])
    nodes = "" if ranking is None else _nodes(table, ranking)
    speed = speed_sentence(table, clock, comparisons.get("samples_per_second", []))
    # Markup is safe here: only names come from the user, and `bold` escapes them.
    return Markup(
        " ".join(filter(None, [*quality, nodes, speed, _endings(table), interruptions or _restarts(table)]))
    )


def _unranked(table: pd.DataFrame) -> list[str]:
    if table["problem"].eq("gan").any():
        return [
            "Runs of a GAN are not ranked: loss and distance are measured by the critic of each run, and cannot be "
            "compared between runs."
        ]
    return ["No run has a finite test metric that can be compared between the runs."]


def _quality(table: pd.DataFrame, metric: ComparedMetric, comparisons: Sequence[RunComparison]) -> list[str]:
    best, spread = _best_mean(table, metric)
    mean = plus_minus(spread, 100, "%") if metric.is_accuracy else plus_minus(spread)
    value = f"{mean} over {repetitions(table[table['run'] == best])}"
    sentences = [_not_finite(table, metric)]
    if table["run"].nunique() == 1:
        return [f"{bold(best)} has a mean {metric.words} of {value}.", *sentences]
    others = [each for each in comparisons if best in (each.run, each.other)]
    beaten = [each for each in others if each.better == best]
    undecided = [each for each in others if each.better is None and each.test.pairs]
    order = "highest" if metric.highest else "lowest"
    of_samples = "With a single seed, verdicts are about these trained models on the test samples, not about other seeds."
    return [
        f"{bold(best)} has the {order} mean {metric.words}: {value}.",
        _beaten(best, beaten, len(others)),
        _undecided(best, undecided),
        _worse_mean(best, [each for each in others if each.better not in (best, None)]),
        of_samples if any(each.method == "samples" for each in others) else "",
        *sentences,
    ]


def _best_mean(table: pd.DataFrame, metric: ComparedMetric) -> tuple[str, Spread]:
    """Return the run with the best mean, and its spread."""
    values = spread_by_run(table, metric.column)
    return sorted(values.items(), key=lambda item: item[1].mean, reverse=bool(metric.highest))[0]


def _beaten(best: str, beaten: Sequence[RunComparison], others: int) -> str:
    if not beaten:
        return ""
    if len(beaten) > MAX_NAMED_RUNS:
        return f"The run is better than {len(beaten)} of {others} other runs."
    return f"The run is better than {listing([_difference(best, each) for each in beaten])}."


def _undecided(best: str, undecided: Sequence[RunComparison]) -> str:
    """Return a sentence on the runs that no test distinguishes from the best one, and the seeds that it would take."""
    if not undecided:
        return ""
    if len(undecided) > MAX_NAMED_RUNS:
        return f"{len(undecided)} runs cannot be distinguished from it."
    names = listing([_difference(best, each) for each in undecided])
    seeds = [each.more_seeds for each in undecided]
    needed = f"; {plural(max(filter(None, seeds)), 'more seed')} would be needed" if all(seeds) else ""
    return f"{names} cannot be distinguished from it{needed}."


def _worse_mean(best: str, better: Sequence[RunComparison]) -> str:
    """Return a sentence on runs that are better in the jobs that they share with the run of the best mean."""
    if not better:
        return ""
    names = listing([_difference(best, each) for each in better])
    return f"In the training tasks that both have, {names} {'is' if len(better) == 1 else 'are'} better."


def _difference(best: str, comparison: RunComparison) -> str:
    other = comparison.other if comparison.run == best else comparison.run
    sign = 1 if comparison.run == best else -1
    return f"{bold(other)} (difference {difference_text(comparison.metric, comparison.test, sign)})"


def _not_finite(table: pd.DataFrame, metric: ComparedMetric) -> str:
    counts = {run: finite_jobs(table, metric, run) for run in dict.fromkeys(table["run"])}
    missing = [
        f"{jobs - finite} of {plural(jobs, 'training task')} of {bold(run)}"
        for run, (finite, jobs) in counts.items()
        if finite < jobs
    ]
    if not missing:
        return ""
    return f"Without a finite {metric.words}, and not in the means: {listing(missing)}."


def _nodes(table: pd.DataFrame, metric: ComparedMetric) -> str:
    """Return a sentence on the best run's node models, or an empty string if its nodes keep no own models."""
    name, (best, _) = metric.name, _best_mean(table, metric)
    found = node_metric_ranges(table, name)
    if best not in found:
        return ""
    return (
        f"Each node of {bold(best)} has its own model; the averaged model gave the test result. "
        f"The validation {name} of the node models is {found[best]}."
    )


def speed_sentence(table: pd.DataFrame, clock: TimeBase, comparisons: Sequence[RunComparison]) -> str:
    """Return a sentence on the fastest and the slowest run; measured and virtual speeds are not compared.

    Args:
        table: summary with one row per job.
        comparisons: tests of the speed of each pair of runs.
    """
    if clock.mixed:
        return "Training speeds are not compared: some runs have a measured clock, others a virtual clock."
    speeds = spread_by_run(table, "samples_per_second")
    ranked = sorted(speeds, key=lambda run: speeds[run].mean, reverse=True)
    ranks = {run: plural(count, "rank") for run, count in table.groupby("run")["ranks"].first().items()}
    fast, slow = ranked[0], ranked[-1]
    rate = f"{rounded(speeds[fast].mean)} samples per {f'{clock.word} second'.strip()}"
    if len(ranked) == 1:
        return f"Its training speed is {rate} with {ranks[fast]}."
    first = f"{bold(fast)} has the highest mean training speed: {rate} with {ranks[fast]}"
    [comparison] = [each for each in comparisons if {each.run, each.other} == {fast, slow}]
    slowest = f"the slowest run, {bold(slow)} ({ranks[slow]})"
    if not math.isfinite(comparison.p_holm):
        ratio = rounded(speeds[fast].mean / speeds[slow].mean)
        untested = (
            " (not tested: the runs share a single training task)" if comparison.test.pairs == 1 else ""
        )
        return f"{first}, {ratio} times that of {slowest}{untested}."
    ratio = difference_text(comparison.metric, comparison.test, 1 if comparison.run == fast else -1)
    if comparison.differs:
        return f"{first}, {ratio} that of {slowest}."
    return f"{first}; it cannot be distinguished from that of {slowest}: {ratio} that speed."


def _endings(table: pd.DataFrame) -> str:
    """Return a sentence on the number of jobs that stopped early because of a measured value."""
    ended = table["ended_early"].dropna()
    return (
        f"{len(ended)} of {plural(len(table), 'training task')} ended early because a stopping rule applied."
        if len(ended)
        else ""
    )


def _restarts(table: pd.DataFrame) -> str:
    count, interrupted = int(table["restarts"].sum()), int((table["restarts"] > 0).sum())
    if not count:
        return ""
    jobs = f"{interrupted} of {plural(len(table), 'training task')}"
    return f"{jobs} {'was' if interrupted == 1 else 'were'} interrupted and resumed ({plural(count, 'restart')})."


def repetitions(table: pd.DataFrame) -> str:
    """Return the number of repetitions of a mean: `3 seeds` or `3 seeds × 5 folds`."""
    seeds, folds = table["seed"].nunique(), table["fold"].nunique()
    return plural(seeds, "seed") + (f" × {plural(folds, 'fold')}" if folds else "")


def sample_weight_sentence(split: str, samples: int) -> str:
    """Return a sentence on the weight of one sample of the evaluated split in the accuracy."""
    return f"The {split} split has {plural(samples, 'sample')}: one sample corresponds to {percent(1 / samples, 2)} of accuracy."


def test_split_sentence(splits: Collection[str]) -> str:
    """Return a sentence on the samples that replace a missing test split, or an empty string."""
    # Sorted, because equal inputs must give equal pages.
    others = sorted(set(splits) - {"test"})
    if not others:
        return ""
    names = {"validation": "the validation split", "held back": "the samples held back for validation"}
    named = listing([names[name] for name in others])
    first = (
        f"The data have no test split: results were measured on {named}."
        if len(set(splits)) == 1
        else f"If the data of a run have no test split, “test” refers to {named}."
    )
    return f"{first} Such results are optimistically biased if validation metrics were used to choose settings or epochs."
