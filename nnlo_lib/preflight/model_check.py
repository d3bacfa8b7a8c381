"""Check of a run's model: built, applied to one batch, with loss, metrics and backward pass."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from nnlo_lib.config import Run
from nnlo_lib.config.problem import UserProblemConfig
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.experiment.yaml_source import KeyPath
from nnlo_lib.preflight.mistake import Mistakes
from nnlo_lib.preflight.model_trial import SAMPLES, ModelTrial
from nnlo_lib.train.replica.model_init import activation_in_loss

logger = get_logger(__name__)


def check_model(run: Run, manifest: DataManifest, mistakes: Mistakes) -> None:
    """Add the mistake for which the run's model cannot be trained on its data, if there is one.

    Large models are built and applied on torch's device `meta`, without memory for their weights. An error there
    does not count: not all layers support the device, so that the model is then tried on the CPU.

    Args:
        run: the run.
        manifest: manifest of the run's data, or of the data that are expected.
        mistakes: list to which the mistake is added.
    """
    with mistakes.collected("model", "name"), _random_state_kept():
        trial = ModelTrial.of(run, manifest)
        if not trial.passes_on_meta():
            _check_on_cpu(trial, mistakes)


def _check_on_cpu(trial: ModelTrial, mistakes: Mistakes) -> None:
    """Add the error of the model, its loss or its metrics."""
    try:
        trial.run_on_cpu()
    except UserError as error:
        mistakes.add_error(_failed_key(trial, str(error)), error)
    except USER_CODE_ERRORS as error:
        mistakes.add(_failed_key(trial, str(error)), _described(trial, error))
    else:
        _warn_about_softmax(trial)


def _failed_key(trial: ModelTrial, text: str) -> KeyPath:
    """Return the key of the setting that failed.

    The message `text` of a metric begins with its name; other errors belong to the stage of the training step.
    """
    for index, metric in enumerate(trial.run.metrics):
        if text.startswith(metric) and metric != trial.run.loss:
            return ("metrics", str(index))
    if isinstance(trial.run.problem, UserProblemConfig) and trial.stage in ("problem", "loss"):
        return ("problem", "name")
    return ("loss",) if trial.stage == "loss" else ("model", "name")


def _described(trial: ModelTrial, error: Exception | SystemExit) -> str:
    error.add_note(trial.tensors.sample_text)
    text = error_with_source_line(error)
    if trial.stage == "backward":
        return f"the loss has no gradient: {text}"
    if trial.stage != "loss" or isinstance(trial.run.problem, UserProblemConfig):
        return text
    shapes = ", ".join(str(tuple(each.shape)) for each in trial.outputs)
    labels = (
        f"of {trial.manifest.classes} classes"
        if trial.manifest.classes
        else f"of shape {trial.manifest.labels.shape}"
    )
    name = trial.run.loss if isinstance(trial.run.loss, str) else "the loss"
    return f"{name} fails: the model returns {shapes} for {SAMPLES} samples with labels {labels}: {text}"


def _warn_about_softmax(trial: ModelTrial) -> None:
    """Log a warning if the model's scores are probabilities, to which the loss would apply softmax again."""
    scores = trial.outputs[0].detach() if trial.outputs else torch.zeros(1, 1)
    twice = (
        scores.dim() == 2
        and scores.shape[1] > 1
        and bool(torch.allclose(scores.sum(1), torch.ones(1).to(scores)))
    )
    if twice and activation_in_loss(trial.run) == "softmax":
        logger.warning(
            f"model.name: the outputs of {trial.run.model.name} sum to 1 as after softmax, which {trial.run.loss} applies itself; "
            "remove softmax from the model, or set `problem: {name: classification, outputs: probabilities}`"
        )


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Restore the random states that building a model changes, for a program that imports nnlo_lib."""
    before, numpy_before = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)
