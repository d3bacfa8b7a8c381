"""Models with several outputs: the assignment of losses and metrics to outputs."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.metrics import Loss
from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.losses import PerSample

Outputs = Any  # of a model: a tensor, a tuple of tensors or a mapping to tensors
MetricLookup = Callable[[str], PerSample]
MetricOfLossLookup = Callable[[str, str], PerSample]  # name of the metric, loss of the measured output


def outputs_by_name(outputs: Outputs) -> dict[str, Tensor]:
    """Return a model's outputs by name; the outputs in a tuple are named 0, 1, ..."""
    if isinstance(outputs, Tensor):
        return {"0": outputs}
    if isinstance(outputs, Mapping):
        return {str(name): tensor for name, tensor in outputs.items()}
    return {str(place): tensor for place, tensor in enumerate(outputs)}


def primary_output(outputs: Outputs) -> Tensor:
    """Return the output that is used unless another one is named: the first."""
    return outputs if isinstance(outputs, Tensor) else next(iter(outputs_by_name(outputs).values()))


def loss_of_output(loss: Loss, outputs: Outputs, output: str = "") -> str:
    """Return the loss of an output, by default of the model's first; an empty string if the output has none.

    Args:
        loss: loss of all outputs, or losses by output.
        outputs: outputs of the model.
        output: name of the output.
    """
    if isinstance(loss, str):
        return loss
    return loss.get(output or next(iter(_named_outputs(outputs, loss))), "")


def metric_of_output(name: str, loss: Loss, find: MetricOfLossLookup) -> Callable[[Outputs, Tensor], Tensor]:
    """Return the metric with this name: `metric` of the first output, or `metric@output` of another one.

    Args:
        name: metric as written in the experiment.
        loss: loss of all outputs, or losses by output.
        find: returns a metric of an output with a loss.
    """
    metric, _, wanted = name.partition("@")
    by_loss = {
        each: find(metric, each) for each in ("", *([loss] if isinstance(loss, str) else loss.values()))
    }

    def measure(outputs: Outputs, labels: Tensor) -> Tensor:
        chosen = _output(outputs, wanted, name)
        return by_loss[loss_of_output(loss, outputs, wanted)](chosen, labels)

    return measure


def _output(outputs: Outputs, wanted: str, metric: str) -> Tensor:
    if not wanted:
        return primary_output(outputs)
    known = outputs_by_name(outputs)
    if wanted not in known:
        raise UserError(f"{metric}: the model has no output '{wanted}'; {suggest_name(wanted, known)}")
    return known[wanted]


def _named_outputs(outputs: Outputs, losses: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the outputs by name; in evaluation, a model may return the main output alone, without its name.

    Its name is then `0`, or else the first name in `losses`.
    """
    if isinstance(outputs, Tensor) and losses and "0" not in losses:
        return {next(iter(losses)): outputs}
    return outputs_by_name(outputs)


class MultiOutputLoss:
    """The loss of each sample: the loss of the only output, or the weighted sum of the losses of all outputs.

    If `loss` is a single name, it is the loss of each output; a single user function gets the model's whole
    return value. Outputs that a model returns only in training, for example auxiliary classifiers, count only
    in training. Raises UserError if the model lacks a named output in training.
    """

    def __init__(self, loss: Loss, weights: Mapping[str, float], find: MetricLookup) -> None:
        self._weights = weights
        self._whole = find(loss) if isinstance(loss, str) else None
        self._plain = isinstance(loss, str) and ".py:" in loss
        self._each = {output: find(name) for output, name in loss.items()} if isinstance(loss, dict) else {}

    def __call__(self, outputs: Outputs, labels: Tensor) -> Tensor:
        """Return the loss of each sample, (samples,)."""
        # Evaluations run without gradient; only then may auxiliary outputs be missing.
        if torch.is_grad_enabled():
            self._refuse_unknown(outputs)
        if self._whole is not None and (self._plain or (isinstance(outputs, Tensor) and not self._weights)):
            return self._whole(outputs, labels)
        parts = _named_outputs(outputs, self._each)
        terms = [
            self._weights.get(name, 1.0) * loss(parts[name], labels)
            for name, loss in (self._each or dict.fromkeys(parts, self._whole)).items()
            if loss is not None and name in parts
        ]
        if not terms:
            raise UserError(
                f"loss: the model has none of the outputs {', '.join(self._each)}; it has {', '.join(parts)}"
            )
        return sum(terms[1:], terms[0])

    def _refuse_unknown(self, outputs: Outputs) -> None:
        for key, wanted in (("loss", self._each), ("loss_weights", self._weights)):
            for name in wanted:
                if name not in (known := outputs_by_name(outputs)):
                    raise UserError(f"{key}: the model has no output '{name}'; it has {', '.join(known)}")
