"""`nnlo model`: the layers of an experiment's models, without training them."""

from pathlib import Path

from nnlo_lib.config import Data, Experiment, Run
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.data.manifest import Column, Manifest
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import Plan
from nnlo_lib.train.observe.described import described
from nnlo_lib.train.outputs import outputs_of
from nnlo_lib.train.replica.initial_model import blank
from nnlo_lib.train.replica.precision import dtype_of
from nnlo_lib.train.replica.tensors import Tensors


def model_command(experiment: Experiment, names: list[str], seed: int) -> None:
    """Print the layers of the models that the runs `names` train, each model once.

    Shapes are those of the converted data, or, before there are such, those that the catalog knows. Raises UserError
    if neither tells them, with the command that converts.
    """
    plan = Plan.of(experiment)
    told: dict[str, list[str]] = {}
    for name in names:
        told.setdefault(describe(plan.run(name), Path(plan.manifest(name)), seed), []).append(name)
    for text, runs in told.items():
        print(f"{', '.join(runs)}: {text}\n")


def describe(run: Run, manifest: Path, seed: int) -> str:
    """Return what the model of a run is, and its layers, as text."""
    data = Manifest.load(manifest) if manifest.exists() else _foreseen(run.data, manifest)
    tensors = Tensors(data, run.data, "cpu", dtype_of(run.train.precision))
    module = blank(run, tensors.shape, outputs_of(run, data), seed).to(dtype_of(run.train.precision))
    return f"{run.model.name} on {run.data.dataset}\n{described(module, tensors.blank()).text}"


def _foreseen(data: Data, path: Path) -> Manifest:
    """Return what is known of a store that is not there yet. Raises UserError if its shapes are not."""
    known = CATALOG.get(data.dataset)
    side = getattr(data.reader, "size", data.crop)
    shape = (known.shape if known else None) or ((3, side, side) if side else None)
    if known is None or shape is None:
        raise UserError(
            f"the shape of {data.dataset}'s samples is known once they are converted: "
            f"snakemake {path} --profile profiles/local --configfile FILE"
        )
    channels, numbers = shape[0], known.classes is None
    column = Column("inputs", shape, "float32" if numbers else "uint8", (0.0,) * channels, (1.0,) * channels)
    labels = Column("labels", (), "float32" if numbers else "int64")
    return Manifest(
        path.parent, data.dataset, data.format, (column,), labels, known.classes, 0, (), known.scale, {}, {}
    )
