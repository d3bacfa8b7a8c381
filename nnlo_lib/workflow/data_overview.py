"""Overview of an experiment's converted data before the training: a description and a picture."""

from pathlib import Path

from nnlo_lib.algorithms.factory import roles
from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.inspect.contact_sheet import contact_sheet, image_input
from nnlo_lib.data.inspect.describe import describe
from nnlo_lib.data.inspect.point_map import has_points, point_map
from nnlo_lib.data.readers import Indices
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan


def print_data_overview(experiment: Experiment, names: list[str], seed: int) -> None:
    """Print the contents of the runs' stores and the samples of each worker.

    If the samples are images, write a contact sheet to results/<experiment>/data-<data set>.png; if the samples are points in
    a plane, a map. With folds, the first one is shown.

    Args:
        experiment: the experiment.
        names: names of the runs.
        seed: seed of the training whose partition is shown.

    Raises:
        UserError: if a store does not exist yet; the message contains the command that creates it.
    """
    plan = Plan.of(experiment)
    for path, runs in _runs_by_manifest(plan, names).items():
        if not path.exists():
            raise UserError(
                f"file not found: {path}; create it with `nnlo run FILE`, or `snakemake stores "
                "--profile profiles/local --configfile FILE`"
            )
        manifest = DataManifest.load(path)
        parts = {name: _worker_partition(experiment, name, run, seed, path) for name, run in runs.items()}
        print(describe(manifest, parts), end="\n\n")
        print(_write_picture(manifest, ExperimentPaths(experiment.name).folder))


def _runs_by_manifest(plan: Plan, names: list[str]) -> dict[Path, dict[str, Run]]:
    stores: dict[Path, dict[str, Run]] = {}
    for name in names:
        stores.setdefault(Path(plan.manifest(name)), {})[name] = plan.run(name)
    return stores


def _worker_partition(
    experiment: Experiment, name: str, run: Run, seed: int, manifest: Path
) -> list[Indices]:
    """Return the samples of each worker as in the training, without staging the store.

    Args:
        experiment: the experiment.
        name: name of the run.
        run: the run.
        seed: seed of the training.
        manifest: manifest of the run's store.
    """
    unstaged = run.model_copy(update={"data": run.data.model_copy(update={"stage_to": None})})
    fold = None if experiment.folds == 1 else 0
    # The task is never trained, so it needs no folder.
    task = Task(experiment.name, name, unstaged, seed, fold, experiment.folds, manifest, Path())
    return TrainingData(task, roles(run, run.parallel.ranks).count("worker")).worker_samples


def _write_picture(manifest: DataManifest, folder: Path) -> str:
    path = folder / f"data-{manifest.dataset}.png"
    if has_points(manifest):
        point_map(manifest, "train", path)
        return f"map of the samples: {path}"
    if image_input(manifest) is None:
        return f"no contact sheet: the samples of {manifest.dataset} are not images"
    contact_sheet(manifest, "train", path)
    return f"contact sheet: {path}"
