"""False verdicts and power of the report's comparisons: simulated summaries, and models that are really trained.

    python benchmarks/false_verdicts.py --experiments 2000 --figure docs/images/false_verdicts.svg
    python benchmarks/false_verdicts.py --quick    # few experiments

Each experiment makes a summary of runs, compares the runs as the report does and counts the experiments in which any
two runs are called different. `earlier rule` is the rule of earlier versions: unpaired deviations, no test. In the
part with trained models, two linear classifiers use different features of the same quality, so that neither is better.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from nnlo_lib.report.statistics.run_comparison import ComparedMetric, compare_runs, ranking_metric

SEEDS = (2, 3, 5, 10)
FOLDS = (3, 5, 10)
SAMPLES = 2000  # test samples of an accuracy
GAINS = (0, 0.5, 1, 1.5, 2, 3, 4, 6)  # true differences, in deviations of a paired difference
Table = pd.DataFrame


def summary(values: np.ndarray, column: str, samples: int, training: int) -> Table:
    """Return the summary of runs with the values (runs, seeds, folds) in a column; one fold means no folds."""
    runs, seeds, folds = values.shape
    places = [(run, seed, fold) for run in range(runs) for seed in range(seeds) for fold in range(folds)]
    table = pd.DataFrame(
        {
            "run": [str(run) for run, _, _ in places],
            "seed": [seed for _, seed, _ in places],
            "fold": pd.array([fold if folds > 1 else pd.NA for _, _, fold in places], dtype="Int64"),
            column: values.ravel(),
        }
    )
    measured = {
        "problem": "classification",
        "loss_function": "",
        "data": "",
        "split": "test",
        "samples": samples,
    }
    table = table.assign(**measured, training_samples=training, validation_samples=samples)
    return table.assign(**{name: table.get(name, 0.5) for name in ("accuracy", "loss")})


def verdict(table: Table) -> bool:
    """Return whether any two runs are called different by the metric that ranks them."""
    metric = ranking_metric(table)
    assert metric is not None
    return any(each.differs for each in compare_runs(table, metric, lambda job, column: None))


def single_seeds(rng: np.random.Generator, samples: int, is_loss: bool) -> bool:
    """Return whether two single trainings of the same quality are called different by their test samples."""
    draw = rng.exponential if is_loss else lambda size: (rng.random(size) < 0.9).astype(float)
    values = {run: draw(size=samples) for run in ("0", "1")}
    table = summary(np.array([[[each.mean()]] for each in values.values()]), "accuracy", samples, samples)
    metric = ComparedMetric("accuracy", True)
    return any(each.differs for each in compare_runs(table, metric, lambda job, column: values[job[0]]))


def earlier_rule(table: Table) -> bool:
    """Return whether any two runs differ by more than the root of the sum of their variances."""
    metric = ranking_metric(table)
    assert isinstance(metric, ComparedMetric)
    groups = table.groupby("run")[metric.column].agg(["mean", "std"]).to_numpy()
    return any(
        abs(one[0] - two[0]) > np.hypot(one[1], two[1])
        for place, one in enumerate(groups)
        for two in groups[:place]
    )


def simulated(rng: np.random.Generator, seeds: int, folds: int, runs: int, gain: float) -> Table:
    """Return a summary of accuracies with a common effect of each seed and fold, and equal folds correlations.

    The correlation of the differences of two folds is 1/folds, as Nadeau and Bengio (2003) assume.
    """
    of_run, own = (np.sqrt(1 / folds), np.sqrt(1 - 1 / folds)) if folds > 1 else (0.0, 1.0)
    values = 0.5 * rng.normal(size=(1, seeds, folds)) + own * rng.normal(size=(runs, seeds, folds))
    values += of_run * rng.normal(size=(runs, 1, 1))
    values[0] += gain
    accuracy = np.round((0.9 + 0.005 * values) * SAMPLES) / SAMPLES
    return summary(
        accuracy, "val_accuracy" if folds > 1 else "accuracy", SAMPLES, SAMPLES * max(folds - 1, 1)
    )


def trained(rng: np.random.Generator, seeds: int, folds: int, on_test_split: bool = False) -> Table:
    """Return the summary of a cross-validation of two classifiers, trained on features of the same quality.

    The values were measured on the validation folds, or, for comparison, on one test split for all folds.
    """
    samples, features, tested = 200, 10, 1000
    sides = rng.choice([-1.0, 1.0], samples + tested)
    inputs = [0.3 * sides[:, None] + rng.normal(size=(samples + tested, features)) for _ in range(2)]
    values = np.zeros((2, seeds, folds))
    for seed in range(seeds):
        for fold, held in enumerate(np.array_split(rng.permutation(samples), folds)):
            kept = np.setdiff1d(np.arange(samples), held)
            measured = np.arange(samples, samples + tested) if on_test_split else held
            for run, each in enumerate(inputs):
                # Training noise, such as initial weights and the order of samples.
                weights = (sides[kept, None] * each[kept]).mean(0) + 0.05 * rng.normal(size=features)
                values[run, seed, fold] = np.mean((each[measured] @ weights > 0) == (sides[measured] > 0))
    return summary(values, "val_accuracy", samples // folds, samples - samples // folds)


def rate(make: Callable[[np.random.Generator], Table], experiments: int) -> tuple[float, float]:
    """Return the share of experiments with a verdict, by the report's tests and by the earlier rule."""
    rng = np.random.default_rng(17)
    found = [(verdict(table), earlier_rule(table)) for table in (make(rng) for _ in range(experiments))]
    return tuple(np.mean(found, axis=0))  # type: ignore[return-value]


def false_verdicts(experiments: int) -> Iterator[tuple[str, float, float]]:
    """Yield a description, and the shares of false verdicts of the tests and of the earlier rule."""
    for runs in (2, 4):
        for seeds in SEEDS:
            name = f"{runs} runs, {seeds} seeds"
            yield name, *rate(lambda rng, s=seeds, r=runs: simulated(rng, s, 1, r, 0.0), experiments)
    for folds in FOLDS:
        yield f"2 runs, {folds} folds", *rate(lambda rng, k=folds: simulated(rng, 1, k, 2, 0.0), experiments)
    for seeds, folds in ((1, 3), (1, 5), (1, 10), (3, 5)):
        name = f"trained models, {seeds} x {folds} folds"
        yield name, *rate(lambda rng, s=seeds, k=folds: trained(rng, s, k), experiments)
    for samples in (30, 300, 3000):
        for kind, is_loss in (("accuracies", False), ("losses, exponential", True)):
            rng = np.random.default_rng(17)
            found = [single_seeds(rng, samples, is_loss) for _ in range(max(experiments // 2, 10))]
            yield f"one seed, {samples} test samples, {kind}", float(np.mean(found)), 0.0
    name = "trained models, 1 x 5 folds on one test split (not used by the report)"
    yield name, *rate(lambda rng: trained(rng, 1, 5, on_test_split=True), experiments)


def power_curve(experiments: int, seeds: int) -> list[float]:
    """Return the share of experiments with a verdict for each difference, in deviations of a paired difference."""
    scale = np.sqrt(2)  # deviation of the difference of two values of deviation 1
    return [
        rate(lambda rng, g=gain: simulated(rng, seeds, 1, 2, scale * g), experiments)[0] for gain in GAINS
    ]


def main() -> None:
    """Print the tables; with --figure, draw the power."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiments", type=int, default=2000)
    parser.add_argument("--figure", type=Path, help="file of the figure of the power")
    parser.add_argument("--quick", action="store_true", help="20 experiments")
    options = parser.parse_args()
    experiments = 20 if options.quick else options.experiments
    print("| false verdicts | tests | earlier rule |\n| --- | ---: | ---: |")
    for name, tests, earlier in false_verdicts(experiments):
        print(f"| {name} | {100 * tests:.1f} % | {100 * earlier:.1f} % |", flush=True)
    curves = {seeds: power_curve(max(experiments // 4, 5), seeds) for seeds in SEEDS}
    print("\n| difference in deviations | " + " | ".join(map(str, GAINS)) + " |")
    print("| --- |" + " ---: |" * len(GAINS))
    for seeds, curve in curves.items():
        print(f"| {seeds} seeds | " + " | ".join(f"{100 * share:.0f} %" for share in curve) + " |")
    if options.figure:
        draw(curves, options.figure)


def draw(curves: dict[int, list[float]], output: Path) -> None:
    """Draw the power against the difference, a curve for each number of seeds."""
    figure, panel = plt.subplots(figsize=(6, 3.6))
    for seeds, curve in curves.items():
        panel.plot(GAINS, curve, marker=".", label=f"{seeds} seeds")
    panel.axhline(0.05, color="grey", lw=0.5)
    panel.set(
        xlabel="true difference, in standard deviations of a paired difference",
        ylabel="probability of a verdict",
        ylim=(0, 1.02),
    )
    panel.legend()
    figure.tight_layout()
    # Without a date, equal results give equal bytes.
    figure.savefig(output, metadata={"Date": None})


if __name__ == "__main__":
    main()
