"""Build the network of a run with its initial weights."""

from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.models.factory import Shape, build_model, input_shapes
from nnlo_lib.models.weights import load_weights

# The activation that each loss applies to scores.
LOSS_ACTIVATIONS = {"cross_entropy": "softmax", "binary_cross_entropy": "sigmoid"}


def build_initial_model(run: Run, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a run's model with random weights, then load `model.weights`.

    Args:
        run: configuration of the run.
        shape: input shape of a sample, or a tuple of shapes.
        classes: number of outputs: classes or targets.
        seed: seed of the random weights.

    Raises:
        UserError: if the model cannot be built or the weights do not fit it.
    """
    return load_initial_weights(run, build_random_model(run, shape, classes, seed), shape)


def build_random_model(run: Run, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a run's model with random weights, without loading `model.weights`.

    Args:
        run: configuration of the run.
        shape: input shape of a sample, or a tuple of shapes.
        classes: number of outputs: classes or targets.
        seed: seed of the random weights.
    """
    model, activation = run.model, activation_in_loss(run)
    return build_model(
        model.name, model.args, shape, classes, seed, activation, model.trust, model.custom_objects
    )


def load_initial_weights(run: Run, module: nn.Module, shape: Shape) -> nn.Module:
    """Load the weights of `model.weights`, if any, into the module; return the module.

    Args:
        run: configuration of the run.
        module: the run's model.
        shape: input shape of a sample, or a tuple of shapes.
    """
    if run.model.weights:
        load_weights(module, run.model.weights, run.model.weights_except, image_channels(shape))
    return module


def image_channels(shape: Shape) -> int | None:
    """Return the channels of an image, 1 for a sample of another shape, or None for several inputs."""
    (first, *others) = input_shapes(shape)
    if others:
        return None
    return first[0] if len(first) == 3 else 1


def activation_in_loss(run: Run) -> str | None:
    """Return the final activation of a Keras model that the loss applies itself (to scores), or None."""
    wants_scores = getattr(run.problem, "outputs", None) == "scores"
    return LOSS_ACTIVATIONS.get(run.loss) if wants_scores and isinstance(run.loss, str) else None
