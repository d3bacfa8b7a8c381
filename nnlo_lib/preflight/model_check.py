"""Check of a run's model with one batch: built, forward, loss, metrics and backward, on the CPU or without values on `meta`."""

import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.metrics import LOSSES
from nnlo_lib.config.problem import (
    ClassificationConfig,
    DenseClassificationConfig,
    RegressionConfig,
    UserProblemConfig,
)
from nnlo_lib.core.errors import USER_CODE_ERRORS, DivergedError, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.experiment.yaml_source import KeyPath
from nnlo_lib.models.saved_networks import StateGuard
from nnlo_lib.preflight.data_check import Mistakes
from nnlo_lib.preflight.output_activation import activation_doubts
from nnlo_lib.problems.base import build_problem, refuse_regularization
from nnlo_lib.problems.losses import classes_only
from nnlo_lib.train.callback import Callback, Callbacks
from nnlo_lib.train.replica.gradients import LocalGradients
from nnlo_lib.train.replica.model_build import (
    build_random_model,
    is_small,
    load_initial_weights,
    model_output_size,
)
from nnlo_lib.train.replica.precision import Precision, parameter_dtype
from nnlo_lib.train.replica.preprocess import Preprocessor, made_up_batch
from nnlo_lib.train.replica.replica import Replica

logger = get_logger(__name__)
SUPERVISED = (ClassificationConfig, RegressionConfig, DenseClassificationConfig)
SAMPLES = 3  # odd, so that a wrong reshape rarely fits; more than 1 for batch normalization


def check_model(run: Run, manifest: DataManifest, mistakes: Mistakes) -> bool:
    """Add the mistake for which the run's model cannot be trained on its data, if there is one.

    Return True if there is none, nor anything to warn of.

    Large models are built and applied on torch's device `meta`, without memory for their weights. An error there
    does not count: not all layers support the device, so that the model is then tried on the CPU.
    """
    with mistakes.collected("model", "name"), _random_state_kept():
        trial = ModelTrial(run, manifest)
        if not trial.passes_on_meta():
            try:
                trial.train_on_cpu()
            except USER_CODE_ERRORS as error:
                trial.add_mistake(error, mistakes)
        doubts = [] if mistakes else list(trial.doubts())
        for doubt in doubts:
            logger.warning(f"model.name: {doubt}")
        return not mistakes and not doubts
    return False


def have_equal_networks(runs: Sequence[Run], manifest: DataManifest) -> bool:
    """Return True if the networks of the runs, built from one seed, have equal layers, weights and outputs in training mode.

    Networks that cannot be built or applied count as different.
    """
    with _random_state_kept():
        found = []
        try:
            for run in runs:
                trial = ModelTrial(run, manifest)
                module = trial.build().train()
                inputs, _ = trial.tensors(trial.batch.inputs, trial.batch.labels)
                torch.manual_seed(0)
                found.append((repr(module), [*module.state_dict().values(), *_tensors(module(*inputs))]))
        except USER_CODE_ERRORS:
            return False
    (layers, tensors), *others = found
    return all(
        layers == other_layers and len(tensors) == len(other) and all(map(torch.equal, tensors, other))
        for other_layers, other in others
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


class ModelTrial(Callback):
    """One batch for a run's model.

    Attributes:
        evaluated: what a supervised model returns in evaluation mode, with a gradient.
        has_values: whether `evaluated` has values; on `meta`, it has none.
        stage: part of the training step that runs: problem, model, loss or backward.
    """

    def __init__(self, run: Run, manifest: DataManifest) -> None:
        """Raise UserError if crop, normalization or problem do not fit the data."""
        self.run, self.manifest = run, manifest
        self.tensors = Preprocessor(manifest, run.data, "cpu", parameter_dtype(run.train.precision))
        self.batch = made_up_batch(manifest, SAMPLES, run.problem)
        self.outputs: list[Tensor] = []
        self.evaluated: Any = None
        self.has_values, self.stage = True, "problem"

    def passes_on_meta(self) -> bool:
        """Return True if a large model of a supervised problem can be trained on `meta`."""
        supervised = isinstance(self.run.problem, ClassificationConfig | RegressionConfig)
        if not supervised or self.run.model.is_network_file:
            return False
        try:
            with torch.device("meta"), warnings.catch_warnings(action="ignore"):
                module = self.build()
                if is_small(module):
                    return False
                load_initial_weights(self.run, module, self.tensors.shape)
            self._train(MetaModel(module))
        except USER_CODE_ERRORS:
            return False
        return True

    def train_on_cpu(self) -> None:
        """Build the model with its weights and train it on the batch; raise the error of any part of it."""
        self._train(load_initial_weights(self.run, self.build(), self.tensors.shape))

    def build(self) -> nn.Module:
        """Return the model with random weights; the seed is of no importance, because only shapes are checked."""
        classes = model_output_size(self.run, self.manifest)
        module = build_random_model(self.run, self.tensors.shape, classes, 0).to(self.tensors.dtype)
        if not any(each.requires_grad for each in module.parameters()):
            raise UserError(f"{self.run.model.name}: the model has no trainable parameter")
        return module

    def _train(self, module: nn.Module) -> None:
        """Compute loss, gradient and metrics of a batch in training mode, then loss and metrics in evaluation mode."""
        problem, batch = build_problem(self.run, self.manifest.classes), self.batch
        self.has_values = not isinstance(module, MetaModel)
        # TorchScript has neither hooks nor identity of tensors; on `meta`, tensors have no values.
        scripted = isinstance(module, torch.jit.ScriptModule)
        guard = StateGuard(module) if self.has_values and not scripted else None
        module = CalledModel(module) if scripted else module
        device = "cpu" if self.has_values else "meta"
        replica = Replica(module.train(), device, channels_last=self.run.train.channels_last)
        replica.callbacks = Callbacks([self])
        module.register_forward_pre_hook(self._enter_model)
        module.register_forward_hook(self._leave_model)
        # In this step, the generator of a GAN trains.
        step = getattr(self.run.problem, "first_generator_step", 0)
        # A layer may lack kernels of half precision for the CPU, so the step has the type of the parameters.
        precision = Precision(str(self.tensors.dtype).removeprefix("torch."), "cpu")
        # Made-up samples say nothing about the size of the loss.
        with suppress(DivergedError):
            [sums] = SimulatedWorld(1).run(
                lambda comm: LocalGradients(replica, problem, self.tensors, comm, precision)(
                    batch, 0, "in the check", step
                )
            )
            self.stage = "loss"
            if sums:
                sums()
        if not problem.adds_regularization:
            refuse_regularization(
                module,
                f"which problem {self.run.problem.name} does not add; a Problem class of your own can add "
                "module.regularization_loss() and set adds_regularization = True",
            )
        if guard and (problem_of_state := guard.problem()):
            self.stage = "model"
            raise UserError(f"{self.run.model.name}: {problem_of_state}")
        inputs, targets = self.tensors(batch.inputs, batch.labels)
        problem.measure(module.eval(), inputs, targets)
        if isinstance(self.run.problem, ClassificationConfig):
            for name in self.run.set_metrics:
                classes_only(targets, name)
        if isinstance(self.run.problem, SUPERVISED):
            # Not in `measure`, which computes no gradient, from which activations are known.
            self.evaluated = (
                module.module(*_on_meta(inputs)) if isinstance(module, MetaModel) else module(*inputs)
            )

    def begin(self, part: str) -> None:
        """Note that the loss of the training step is computed."""
        if part == "backward":
            self.stage = part

    def _enter_model(self, module: nn.Module, inputs: Any) -> None:
        self.stage = "model"

    def _leave_model(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Keep the outputs. Raises UserError if they are no tensors, for example without `return`."""
        kept = list(outputs.values()) if isinstance(outputs, dict) else outputs
        kept = kept if isinstance(kept, list | tuple) else [kept]
        if not kept or not all(isinstance(each, Tensor) for each in kept):
            found = ", ".join(type(each).__name__ for each in kept) or "nothing"
            raise UserError(
                f"{self.run.model.name}: forward() of {type(module).__name__} returned {found}; it must return a tensor, "
                "or a tuple or a mapping of tensors (is `return` missing?)"
            )
        self.outputs = list(kept)
        excess, returned = self._excess_outputs()
        # One number decides between two classes.
        if excess < (-1 if self.manifest.classes == 2 else 0):
            raise UserError(f"{self.run.model.name}: {returned}; return one number for each class")
        self.stage = "loss"

    def _excess_outputs(self) -> tuple[int, str]:
        """Return the scores of a classification without a class, negative if classes have no score, and what is returned."""
        classes, first = self.manifest.classes, self.outputs[0] if self.outputs else None
        is_known = (
            isinstance(self.run.problem, ClassificationConfig) and self.run.loss in LOSSES["classification"]
        )
        if not is_known or classes is None or first is None or first.dim() != 2 or len(first) != SAMPLES:
            return 0, ""
        count = first.shape[1]
        return count - classes, (
            f"the model returns {count} number{'s' * (count > 1)} per sample, but {self.manifest.dataset} has {classes} classes"
        )

    def doubts(self) -> Iterator[str]:
        """Yield what a model that can be trained is probably mistaken in."""
        excess, returned = self._excess_outputs()
        if excess > 0:
            yield f"{returned}; is the number of outputs right?"
        if self.evaluated is not None:
            yield from activation_doubts(self.run, self.evaluated, self.has_values)

    def add_mistake(self, error: Exception | SystemExit, mistakes: Mistakes) -> None:
        """Add an error of the trial at the key of the setting that failed.

        The message of a metric begins with its name; other errors belong to the stage of the training step.
        """
        own_problem, run = isinstance(self.run.problem, UserProblemConfig), self.run
        key: KeyPath = ("loss",) if self.stage == "loss" else ("model", "name")
        if own_problem and self.stage in ("problem", "loss"):
            key = ("problem", "name")
        own_metrics = (each for each in run.metrics if each != run.loss)
        if metric := next(filter(str(error).startswith, own_metrics), None):
            key = ("metrics", str(run.metrics.index(metric)))
        if isinstance(error, UserError):
            mistakes.add_error(key, error)
            return
        error.add_note(self.tensors.sample_text)
        text, stored = error_with_source_line(error), self.manifest
        if self.stage == "backward":
            text = f"the loss has no gradient: {text}"
        elif self.stage == "loss" and not own_problem:
            shapes = ", ".join(str(tuple(each.shape)) for each in self.outputs)
            labels = f"of {stored.classes} classes" if stored.classes else f"of shape {stored.labels.shape}"
            name = run.loss if isinstance(run.loss, str) else "the loss"
            text = (
                f"{name} fails: the model returns {shapes} for {SAMPLES} samples with labels {labels}: {text}"
            )
        mistakes.add(key, text)


class CalledModel(nn.Module):
    """Calls a module, for example of TorchScript, which does not support hooks itself."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Any:
        """Return the module's outputs."""
        return self.module(*inputs)


class MetaModel(CalledModel):
    """Applies a model on `meta`, forward and backward, and returns random outputs of the shapes it would return.

    A loss and metrics can then compute with the values of outputs, which `meta` does not have.
    """

    def forward(self, *inputs: Tensor) -> Any:
        """Return random outputs of the model's shapes and types."""
        outputs = self.module(*_on_meta(inputs))
        if torch.is_grad_enabled():
            for each in _tensors(outputs):
                if each.requires_grad:
                    each.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        return _like(outputs)


def _on_meta(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    return [each.to("meta") for each in inputs]


def _tensors(outputs: Any) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    return list(outputs.values() if isinstance(outputs, dict) else outputs)


def _like(outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        values = torch.rand(outputs.shape, dtype=torch.float32).to(outputs.dtype)
        return values.requires_grad_(outputs.requires_grad)
    if isinstance(outputs, dict):
        return {name: _like(each) for name, each in outputs.items()}
    return tuple(_like(each) for each in outputs)
