"""The layers of an experiment's models, without training them."""

from pathlib import Path

from nnlo_lib.config import Experiment, Run
from nnlo_lib.preflight.expected_manifest import expected_manifest, unknown_shape_error
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
    plan = Plan.of(experiment)
    names_by_text: dict[str, list[str]] = {}
    for name in names:
        run = plan.run(name)
        model = run.model.model_copy(update={"trust": trust or run.model.trust})
        run = run.model_copy(update={"model": model})
        text = describe_model(run, Path(plan.manifest(name)), seed)
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
    data = expected_manifest(run)
    if data is None:
        raise unknown_shape_error(run.data, manifest)
    tensors = Preprocessor(data, run.data, "cpu", parameter_dtype(run.train.precision))
    module = build_random_model(run, tensors.shape, model_output_size(run, data), seed).to(
        parameter_dtype(run.train.precision)
    )
    return f"{run.model.name} on {run.data.dataset}\n{summarize_model(module, tensors.dummy_batch()).text}"
