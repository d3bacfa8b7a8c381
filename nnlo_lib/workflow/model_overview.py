"""The layers of an experiment's models, without training them."""

from pathlib import Path

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.data.store.manifest import ArraySpec, DataManifest
from nnlo_lib.train.observe.model_summary import summarize_model
from nnlo_lib.train.output_size import model_output_size
from nnlo_lib.train.replica.model_init import build_random_model
from nnlo_lib.train.replica.precision import parameter_dtype
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.workflow.plan import Plan


def print_model_overview(experiment: Experiment, names: list[str], seed: int) -> None:
    """Print the layers of the models of some runs, each model once.

    The shapes of the samples come from the converted data or, before the conversion, from the catalog.

    Args:
        experiment: the experiment.
        names: names of the runs.
        seed: seed of the initial weights.

    Raises:
        UserError: if neither has the shapes; the message contains the command that converts the data.
    """
    plan = Plan.of(experiment)
    names_by_text: dict[str, list[str]] = {}
    for name in names:
        text = describe_model(plan.run(name), Path(plan.manifest(name)), seed)
        names_by_text.setdefault(text, []).append(name)
    for text, runs in names_by_text.items():
        print(f"{', '.join(runs)}: {text}\n")


def describe_model(run: Run, manifest: Path, seed: int) -> str:
    """Return a run's model, its data set and the model's layers as text.

    Args:
        run: the run.
        manifest: manifest of the run's store, which need not exist.
        seed: seed of the initial weights.
    """
    data = DataManifest.load(manifest) if manifest.exists() else _manifest_from_catalog(run.data, manifest)
    tensors = Preprocessor(data, run.data, "cpu", parameter_dtype(run.train.precision))
    module = build_random_model(run, tensors.shape, model_output_size(run, data), seed).to(
        parameter_dtype(run.train.precision)
    )
    return f"{run.model.name} on {run.data.dataset}\n{summarize_model(module, tensors.dummy_batch()).text}"


def _manifest_from_catalog(data: DataConfig, path: Path) -> DataManifest:
    """Return a future store's manifest from the catalog. Raises UserError if the shape is unknown."""
    known = CATALOG.get(data.dataset)
    side = getattr(data.reader, "size", data.crop)
    shape = (known.shape if known else None) or ((3, side, side) if side else None)
    if known is None or shape is None:
        raise UserError(
            f"data.dataset: the sample shape of {data.dataset} is unknown before the conversion; convert the data set "
            f"with `snakemake {path} --profile profiles/local --configfile FILE`"
        )
    channels, numbers = shape[0], known.classes is None
    # Mean 0 and deviation 1: the statistics are unknown before the conversion, and no layer depends on them.
    column = ArraySpec(
        "inputs", shape, "float32" if numbers else "uint8", (0.0,) * channels, (1.0,) * channels
    )
    labels = ArraySpec("labels", (), "float32" if numbers else "int64")
    return DataManifest(
        path.parent, data.dataset, data.format, (column,), labels, known.classes, 0, (), known.scale, {}, {}
    )
