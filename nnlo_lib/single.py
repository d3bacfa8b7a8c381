"""One training of an experiment with everything it needs, without Snakemake."""

import json
import sys
from pathlib import Path

from nnlo_lib.config import Data, Experiment, Job
from nnlo_lib.config.measures import column
from nnlo_lib.data.atomic import replacing
from nnlo_lib.data.conversion import Conversion
from nnlo_lib.data.fetch import fetch
from nnlo_lib.data.store import convert
from nnlo_lib.jobs import Plan
from nnlo_lib.launch.attempt import Wishes
from nnlo_lib.launch.command import train
from nnlo_lib.train.task import Task


def run_one(experiment: Experiment, name: str, seed: int, fold: int | None, launcher: str) -> int:
    """Fetch and convert what is missing, train, evaluate; return the exit status.

    Files lie where the workflow puts them, so that either can go on where the other stopped.
    """
    plan = Plan.of(experiment)
    run, manifest = plan.run(name), Path(plan.manifest(name))
    if experiment.folds > 1:
        fold = fold or 0
    folder = Path("results", experiment.name, Job(run=name, seed=seed, fold=fold).path)
    if not manifest.exists():
        prepare(run.data, manifest.parent)
    with replacing(folder.parents[fold is not None] / "config.json") as part:
        part.write_text(plan.resolved(name))
    task = Task(experiment.name, name, run, seed, fold, experiment.folds, manifest, folder)
    status = train(task, Wishes(launcher))
    if status == 0:
        _evaluate(task)
    return status


def prepare(data: Data, target: Path) -> None:
    """Fetch a data set and convert it to the store in `target`."""
    raw, reader = target.parent / "raw", data.reader.model_dump(mode="json") if data.reader else None
    conversion = Conversion.of(data.dataset, reader, raw, target, data.format, data.samples_per_shard)
    fetch(conversion.dataset, raw, data.source)
    convert(conversion)


def _evaluate(task: Task) -> None:
    from nnlo_lib.train.measure.evaluate import evaluate_model

    output = task.folder / "evaluation.json"
    evaluate_model(task.run, task.manifest, task.folder / "model.safetensors", output)
    report = json.loads(output.read_text())
    figures = "  ".join(f"{key} {report[key]:.4f}" for key in ("loss", *map(column, task.run.metrics)))
    print(f"test ({report['samples']:,} samples): {figures}\nresults in {task.folder}/", file=sys.stderr)
