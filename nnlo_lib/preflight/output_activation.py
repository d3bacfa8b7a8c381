"""Whether the last activation of a model fits its loss: a loss of scores applies softmax or sigmoid itself."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from nnlo_lib.config import Run
from nnlo_lib.config.problem import ClassificationConfig, RegressionConfig
from nnlo_lib.problems.losses import LOSSES_OF_DISTANCE
from nnlo_lib.problems.supervised import loss_of_output, outputs_by_name

APPLIES_ACTIVATION = ("cross_entropy", "binary_cross_entropy")
ACTIVATIONS = {"Sigmoid": "sigmoid", "Hardsigmoid": "sigmoid", "Softmax": "softmax"}
# Operations of autograd that move, copy, convert or bound values.
NEUTRAL = (
    "View", "UnsafeView", "ReshapeAlias", "AsStrided", "Alias", "Squeeze", "Unsqueeze", "Permute", "Transpose", "T", "Expand",
    "Select", "Slice", "Index", "Clone", "ToCopy", "Clamp", "Cat", "Stack",
)  # fmt: skip
TOLERANCE = 1e-3


def final_activation(output: Tensor, has_values: bool) -> str:
    """Return `softmax` or `sigmoid` if an output with a gradient is the result of one, else an empty string.

    Args:
        output: (samples, ...).
        has_values: whether the values of the output are known, so that a softmax of any kind is recognized by its sum.
    """
    is_table = output.dim() == 2 and output.shape[1] > 1
    if (
        has_values
        and is_table
        and torch.allclose(output.sum(1).float(), torch.ones(len(output)), atol=TOLERANCE)
    ):
        return "softmax"
    node: Any = output.grad_fn
    while node is not None:
        operation = node.name().partition("Backward")[0]
        if operation not in NEUTRAL or not node.next_functions:
            return ACTIVATIONS.get(operation, "")
        node = node.next_functions[0][0]
    return ""


def activation_doubts(run: Run, outputs: Any, has_values: bool) -> Iterator[str]:
    """Yield what is wrong with the activations of a supervised model's outputs, each beside its loss and metrics.

    Args:
        outputs: what the model returns in evaluation mode, with a gradient.
        has_values: whether the outputs have values; on the device `meta`, they have none.
    """
    what = f"the outputs of {run.model.name}"
    is_scored = isinstance(run.problem, ClassificationConfig | RegressionConfig)
    option = f", or set `problem: {{name: {run.problem.name}, outputs: probabilities}}`" if is_scored else ""
    for place, (name, output) in enumerate(outputs_by_name(outputs).items()):
        loss, own = loss_of_output(run.loss, outputs, name), "" if place == 0 else name
        functions = [loss, *(each.partition("@")[0] for each in run.metrics if each.partition("@")[2] == own)]
        activation, values = final_activation(output, has_values), output.detach().float()
        remedy = f"remove {activation} from the model{option}"
        applied = [each for each in functions if each in APPLIES_ACTIVATION]
        # Each number of the output decides alone, above or below 0.
        has_one = output.dim() > 0 and 0 < output.numel() == len(output)
        is_one = isinstance(run.problem, ClassificationConfig) and has_one
        is_split_at_zero = loss not in LOSSES_OF_DISTANCE and (is_one or "binary_accuracy" in functions)
        if getattr(run.problem, "outputs", "scores") == "probabilities":
            if has_values and not bool(((values >= 0) & (values <= 1)).all()):
                yield (
                    f"{what} are from {float(values.min()):.3g} to {float(values.max()):.3g}, but `problem.outputs: "
                    "probabilities` means 0 to 1; end the model with softmax or sigmoid, or remove `outputs`"
                )
        elif "nll" in functions:
            sums = values.exp().sum(1) if has_values and not activation else torch.ones(1)
            if activation:
                yield (
                    f"{what} are as after {activation}, but nll needs logarithms of probabilities; end the model with log_softmax, or "
                    "use cross_entropy, with `problem: {name: classification, outputs: probabilities}`"
                )
            elif not torch.allclose(sums, torch.ones_like(sums), atol=TOLERANCE):
                yield (
                    f"{what} are no logarithms of probabilities, but nll needs logarithms of probabilities; end the model with "
                    "log_softmax, or use cross_entropy, which takes scores"
                )
        elif activation and applied:
            sign = "sum to 1" if activation == "softmax" else "are between 0 and 1"
            yield f"{what} {sign} as after {activation}, which {applied[0]} applies itself; {remedy}"
        elif activation == "sigmoid" and is_split_at_zero:
            yield f"{what} are between 0 and 1 as after sigmoid, but an output above 0 counts as positive; {remedy}"
