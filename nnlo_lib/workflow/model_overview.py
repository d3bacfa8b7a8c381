"""The layers of an experiment's models, and the time of an iteration, without a data set."""

from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.config import Experiment, Run
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.preflight.expected_manifest import expected_manifest, unknown_shape_error
from nnlo_lib.train.iteration_timing import time_iterations
from nnlo_lib.train.observe.model_summary import summarize_model
from nnlo_lib.train.output_size import model_output_size
from nnlo_lib.train.replica.model_init import build_random_model
from nnlo_lib.train.replica.precision import parameter_dtype
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.workflow.plan import Plan


def print_model_overview(experiment: Experiment, names: list[str], seed: int, trust: bool = False) -> None:
    """Print the layers of the models of some runs, each model once.

    The shapes of the samples come from the converted data or, before the conversion, from the catalog.

    Args:
        experiment: the experiment.
        names: names of the runs.
        seed: seed of the initial weights.
        trust: allow that network files run their code when they are read, whatever `model.trust` is.

    Raises:
        UserError: if neither has the shapes; the message contains the command that converts the data.
    """
    names_by_text: dict[str, list[str]] = {}
    for name, run, manifest in _runs(experiment, names, trust):
        names_by_text.setdefault(describe_model(run, manifest, seed), []).append(name)
    for text, runs in names_by_text.items():
        print(f"{', '.join(runs)}: {text}\n")


def print_iteration_times(
    experiment: Experiment, names: list[str], iterations: int, trust: bool = False
) -> None:
    """Train the models of some runs on made-up samples and print the times of an iteration on one rank.

    Args:
        experiment: the experiment.
        names: names of the runs.
        iterations: number of timed iterations.
        trust: allow that network files run their code when they are read, whatever `model.trust` is.

    Raises:
        UserError: if the shapes of the samples are unknown.
    """
    for name, run, manifest in _runs(experiment, names, trust):
        times = time_iterations(run, _shapes(run, manifest), experiment.seeds[0], iterations)
        print(f"{name}: {run.model.name} on made-up samples as of {run.data.dataset}\n{times.text}\n")


def _runs(experiment: Experiment, names: list[str], trust: bool) -> Iterator[tuple[str, Run, Path]]:
    """Yield name, settings and manifest of some runs.

    Args:
        experiment: the experiment.
        names: names of the runs.
        trust: whether network files may run their code.
    """
    plan = Plan.of(experiment)
    for name in names:
        run = plan.run(name)
        model = run.model.model_copy(update={"trust": trust or run.model.trust})
        yield name, run.model_copy(update={"model": model}), Path(plan.manifest(name))


def _shapes(run: Run, manifest: Path) -> DataManifest:
    """Return a manifest with the shapes of a run's samples. Raises UserError if they are unknown."""
    data = expected_manifest(run)
    if data is None:
        raise unknown_shape_error(run.data, manifest)
    return data


def describe_model(run: Run, manifest: Path, seed: int) -> str:
    """Return a run's model, its data set and the model's layers as text.

    Args:
        run: the run.
        manifest: manifest of the run's store, which need not exist.
        seed: seed of the initial weights.
    """
    data = _shapes(run, manifest)
    tensors = Preprocessor(data, run.data, "cpu", parameter_dtype(run.train.precision))
    module = build_random_model(run, tensors.shape, model_output_size(run, data), seed).to(
        parameter_dtype(run.train.precision)
    )
    return f"{run.model.name} on {run.data.dataset}\n{summarize_model(module, tensors.dummy_batch()).text}"
