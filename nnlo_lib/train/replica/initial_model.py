"""The network of a run, with the weights that its training begins with."""

from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.models.build import Shape, build
from nnlo_lib.models.weights import load_weights

APPLIED = {"cross_entropy": "softmax", "binary_cross_entropy": "sigmoid"}  # by the loss, to scores


def initial_model(run: Run, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a run's model: drawn from `seed`, then as `model.weights` says. Raises UserError."""
    return with_weights(run, blank(run, shape, classes, seed))


def blank(run: Run, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a run's model for weights that come later."""
    return build(run.model.name, run.model.args, shape, classes, seed, undone(run))


def with_weights(run: Run, module: nn.Module) -> nn.Module:
    """Give a model the weights of `model.weights`, if any."""
    if run.model.weights:
        load_weights(module, run.model.weights, run.model.weights_except)
    return module


def undone(run: Run) -> str | None:
    """Return which activation at the end of a Keras model the loss applies itself, where it wants scores."""
    wants_scores = getattr(run.problem, "outputs", None) == "scores"
    return APPLIED.get(run.loss) if wants_scores and isinstance(run.loss, str) else None
