"""The network of a run, with the weights that its training begins with."""

from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.models.factory import Shape, build_model
from nnlo_lib.models.weights import load_weights

LOSS_ACTIVATIONS = {"cross_entropy": "softmax", "binary_cross_entropy": "sigmoid"}  # by the loss, to scores


def build_initial_model(run: Run, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a run's model: drawn from `seed`, then as `model.weights` says. Raises UserError."""
    return load_initial_weights(run, build_random_model(run, shape, classes, seed))


def build_random_model(run: Run, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a run's model for weights that come later."""
    return build_model(run.model.name, run.model.args, shape, classes, seed, activation_in_loss(run))


def load_initial_weights(run: Run, module: nn.Module) -> nn.Module:
    """Give a model the weights of `model.weights`, if any."""
    if run.model.weights:
        load_weights(module, run.model.weights, run.model.weights_except)
    return module


def activation_in_loss(run: Run) -> str | None:
    """Return which activation at the end of a Keras model the loss applies itself, where it wants scores."""
    wants_scores = getattr(run.problem, "outputs", None) == "scores"
    return LOSS_ACTIVATIONS.get(run.loss) if wants_scores and isinstance(run.loss, str) else None
