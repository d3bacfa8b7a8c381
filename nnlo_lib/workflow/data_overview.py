"""Overview of an experiment before its training: the converted data, the layers of its models, the time of an iteration."""

from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.algorithms.factory import roles
from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.contact_sheet import contact_sheet, has_points, image_input, point_map
from nnlo_lib.data.describe import describe
from nnlo_lib.data.readers.base import Indices
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.preflight.data_check import expected_manifest
from nnlo_lib.topology.topology import building_of
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.iteration_timing import time_iterations
from nnlo_lib.train.model_summary import summarize_model
from nnlo_lib.train.replica.model_build import build_random_model, model_output_size
from nnlo_lib.train.replica.precision import parameter_dtype
from nnlo_lib.train.replica.preprocess import Preprocessor, made_up_batch
from nnlo_lib.train.task import Task, prepare_store
from nnlo_lib.workflow.plan import Plan


def print_data_overview(experiment: Experiment, names: list[str], seed: int) -> None:
    """Print the contents of the runs' stores, which are made if they do not exist, and the samples of each worker.

    If the samples are images, write a contact sheet to results/<experiment>/data-<data set>.png; if the samples are points in
    a plane, a map. With folds, the first one is shown. `seed` is that of the training whose partition is shown.
    """
    plan = Plan.of(experiment)
    stores: dict[Path, dict[str, Run]] = {}
    for name in names:
        stores.setdefault(prepare_store(plan.store(name)), {})[name] = plan.run(name)
    for path, runs in stores.items():
        manifest = DataManifest.load(path)
        parts = {name: _worker_partition(experiment, name, run, seed, path) for name, run in runs.items()}
        print(describe(manifest, parts), end="\n\n")
        print(
            _write_picture(manifest, ExperimentPaths(experiment.name).folder, next(iter(runs.values())).data)
        )


def _worker_partition(
    experiment: Experiment, name: str, run: Run, seed: int, manifest: Path
) -> list[Indices]:
    """Return the samples of each worker as in the training, without staging the store."""
    unstaged = run.model_copy(update={"data": run.data.model_copy(update={"stage_to": None})})
    fold = None if experiment.folds == 1 else 0
    # The task is never trained, so it needs no folder.
    task = Task(experiment.name, name, unstaged, seed, fold, experiment.folds, manifest, Path())
    return TrainingData(task, roles(run, run.parallel.ranks).count("worker")).worker_samples


def _write_picture(manifest: DataManifest, folder: Path, data: DataConfig) -> str:
    path = folder / f"data-{manifest.dataset}.png"
    if has_points(manifest):
        point_map(manifest, "train", path, [*building_of(data).robot_paths()] if data.has_robots else [])
        return f"map of the samples: {path}"
    if image_input(manifest) is None:
        return f"no contact sheet: the samples of {manifest.dataset} are not images"
    contact_sheet(manifest, "train", path)
    return f"contact sheet: {path}"


def print_model_overview(experiment: Experiment, names: list[str], seed: int, trust: bool = False) -> None:
    """Print the layers of the models of some runs, each model once.

    The shapes of the samples come from the converted data or, before the conversion, from the catalog.
    With `trust`, network files may run their code when they are read, whatever `model.trust` is.

    Raises UserError if neither has the shapes; the message contains the command that converts the data.
    """
    names_by_text: dict[str, list[str]] = {}
    for name, run in _runs(experiment, names, trust):
        names_by_text.setdefault(describe_model(run, seed), []).append(name)
    for text, runs in names_by_text.items():
        print(f"{', '.join(runs)}: {text}\n")


def describe_model(run: Run, seed: int) -> str:
    """Return a run's model, its data set and the model's layers as text; its store need not exist."""
    data, dtype = _shapes(run), parameter_dtype(run.train.precision)
    tensors = Preprocessor(data, run.data, "cpu", dtype)
    module = build_random_model(run, tensors.shape, model_output_size(run, data), seed).to(dtype)
    sample = made_up_batch(data, 1)
    inputs, _ = tensors(sample.inputs, sample.labels)
    return f"{run.model.name} on {run.data.dataset}\n{summarize_model(module, inputs).text}"


def print_iteration_times(
    experiment: Experiment, names: list[str], iterations: int, trust: bool = False
) -> None:
    """Train the models of some runs on made-up samples and print the times of an iteration on one rank.

    Raises UserError if the shapes of the samples are unknown.
    """
    for name, run in _runs(experiment, names, trust):
        times = time_iterations(run, _shapes(run), experiment.seeds[0], iterations)
        print(f"{name}: {run.model.name} on made-up samples as of {run.data.dataset}\n{times.text}\n")


def _runs(experiment: Experiment, names: list[str], trust: bool) -> Iterator[tuple[str, Run]]:
    """Yield name and settings of some runs."""
    plan = Plan.of(experiment)
    for name in names:
        run = plan.run(name)
        model = run.model.model_copy(update={"trust": trust or run.model.trust})
        yield name, run.model_copy(update={"model": model})


def _shapes(run: Run) -> DataManifest:
    """Return a manifest with the shapes of a run's samples. Raises UserError if they are unknown."""
    data = expected_manifest(run)
    if data is None:
        raise UserError(
            f"data.dataset: the sample shape of {run.data.dataset} is unknown before the conversion; convert the data set: nnlo data FILE"
        )
    return data
