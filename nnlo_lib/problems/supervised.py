"""Supervised problems, classification and regression: losses and metrics of labeled samples, of models with one or several outputs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.metrics import Loss, metric_column
from nnlo_lib.config.problem import ClassificationConfig, RegressionConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.base import BatchLoss, Problem, regularization_loss
from nnlo_lib.problems.losses import (
    PerSample,
    decision_threshold,
    loss_by_name,
    metric_by_name,
    output_table,
    predicted,
)

Outputs = Any  # of a model: a tensor, a tuple of tensors or a mapping to tensors
Measure = Callable[[Outputs, Tensor], Tensor]  # model outputs, labels (samples, ...) -> (samples,)
Predicted = Callable[[Outputs], Tensor]  # model outputs -> (samples,) classes


class SupervisedProblem(Problem):
    """A loss and metrics of a model's outputs and labels: one number for each sample.

    The loss includes the model's regularization loss, in training and in evaluation, as in Keras.

    Attributes:
        predicted: returns the predicted classes; None for regression.
        table: returns what the numbers of the first output are, and these numbers (see `output_table`); None if they are no table.
        set_metrics: metrics of all samples together, which need this table.
        class_weights: of the loss of the training, (classes,) float64; None without.

    The loss of a training with class weights is sum(weight * loss) / samples, not / sum(weight) as torch's weighted mean: only
    then is the gradient of R ranks with b samples each that of one rank with R b samples, whatever classes a rank has. Balanced
    weights have mean 1 over the training samples, so that both agree for all samples together. The losses of validation and
    evaluation have no class weights, as in Keras, so that runs with and without can be compared.

    Weights of samples are part of the targets (`Split.weighted`). They multiply the losses in the same way, and count in
    validation and evaluation, too. Targets of mixed samples (`Mixture`) have a label, another label and the share of the
    first: losses and metrics of the training are the sums over both labels, times their weights and shares.

    A balanced accuracy is the mean over classes of summed hits / samples of the class. Behind the sums of the other metrics are
    the samples of each class, then for each balanced accuracy the hits of each class.
    """

    adds_regularization = True
    table: Callable[[Outputs], tuple[str, Tensor]] | None = None
    set_metrics: tuple[str, ...] = ()
    class_weights: Tensor | None = None
    _classes = 0
    _mixes = False  # whether samples of the training are mixed

    def __init__(
        self, losses: Measure, metrics: Mapping[str, Measure], predicted: Predicted | None = None
    ) -> None:
        self.names = ("loss", *metrics)
        self.losses, self.predicted = losses, predicted
        self._metrics = list(metrics.values())
        self._balanced: list[int] = []  # places of the balanced accuracies among the metrics

    @classmethod
    def from_config(cls, config: ClassificationConfig | RegressionConfig, run: Run) -> "SupervisedProblem":
        """Return the problem of a classification or regression run."""
        metrics = {
            metric_column(name): metric_of_output(name, run.loss, partial(metric_by_name, config))
            for name in run.sample_metrics
        }
        losses = MultiOutputLoss(run.loss, run.loss_weights, partial(loss_by_name, config))

        def table(outputs: Outputs) -> tuple[str, Tensor]:
            return output_table(config, loss_of_output(run.loss, outputs), primary_output(outputs))

        def predicted_classes(outputs: Outputs) -> Tensor:
            threshold = decision_threshold(config, loss_of_output(run.loss, outputs))
            return predicted(primary_output(outputs), threshold)

        problem = cls(losses, metrics, None if isinstance(config, RegressionConfig) else predicted_classes)
        problem.table, problem.set_metrics = table, run.set_metrics
        problem._mixes = isinstance(config, ClassificationConfig) and bool(config.mixup or config.cutmix)
        names = [name.partition("@")[0] for name in run.sample_metrics]
        problem._balanced = [place for place, name in enumerate(names) if name == "balanced_accuracy"]
        return problem

    def set_classes(self, classes: int | None, weights: Tensor | None) -> None:
        self._classes, self.class_weights = classes or 0, weights

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The loss and the metrics that are means over samples."""
        return tuple(name for place, name in enumerate(self.names) if place - 1 not in self._balanced)

    @property
    def sums_size(self) -> int:
        return super().sums_size + self._classes * (1 + len(self._balanced)) * bool(self._balanced)

    def means(self, sums: Tensor) -> dict[str, float]:
        count = 1 + len(self.names)
        found = super().means(sums[:count])
        if found and self._balanced:
            samples, *hits = sums[count:].view(1 + len(self._balanced), -1)
            for place, each in zip(self._balanced, hits, strict=True):
                found[self.names[1 + place]] = float((each / samples)[samples > 0].mean())
        return found

    def compute_loss(
        self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor, step: int
    ) -> BatchLoss:
        outputs = module(*inputs)
        loss, penalty = self.training_losses(outputs, targets).mean(), regularization_loss(module)
        loss = loss if penalty is None else loss + penalty
        # On demand: the trainer computes metrics after the exchange of gradients has begun.
        return BatchLoss(loss, lambda: self.sums(outputs, targets, loss))

    def unpacked(self, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the labels, and the weights of the samples, (samples,) float64, or None; see `Split.weighted`."""
        if not targets.is_complex():
            return targets, None
        return (targets.real.long() if self._classes else targets.real), targets.imag

    def sample_losses(self, outputs: Outputs, targets: Tensor) -> Tensor:
        """Return the loss of each sample times its weight, (samples,)."""
        labels, weights = self.unpacked(targets)
        losses = self.losses(outputs, labels)
        return losses if weights is None else losses * weights.to(losses.dtype)

    def training_losses(self, outputs: Outputs, targets: Tensor) -> Tensor:
        """Return the loss of each sample times the weights of the sample and of its class, (samples,)."""

        def losses(targets: Tensor) -> list[Tensor]:
            found = self.sample_losses(outputs, targets)
            if self.class_weights is None:
                return [found]
            return [found * self.weights_of(self.unpacked(targets)[0]).to(found.dtype)]

        return self._in_shares(losses, targets)[0]

    def _in_shares(self, measure: Callable[[Tensor], list[Tensor]], targets: Tensor) -> list[Tensor]:
        """Return `measure` of targets (samples,); of mixed ones, (samples, 3), the values of both labels in their shares."""
        if not self._mixes or targets.dim() == 1:
            return measure(targets)
        *labels, share = targets.unbind(1)
        of_labels = (measure(each if each.is_complex() else each.long()) for each in labels)
        return [share.real * one + (1 - share.real) * other for one, other in zip(*of_labels, strict=True)]

    def weights_of(self, labels: Tensor) -> Tensor:
        """Return the class weight of each label."""
        assert self.class_weights is not None, "only losses with class weights ask for them"
        # Kept on the device, because a recording of a GPU's passes can copy nothing to it.
        self.class_weights = self.class_weights.to(labels.device)
        return self.class_weights[labels]

    @torch.no_grad()
    def measure(self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        return self.sums_of_outputs(module(*inputs), targets, regularization_loss(module))

    def sums_of_outputs(self, outputs: Outputs, targets: Tensor, penalty: Tensor | None = None) -> Tensor:
        """Return the sums of a model's outputs; the loss includes `penalty`, the model's regularization loss."""
        loss = self.sample_losses(outputs, targets).mean()
        return self.sums(outputs, targets, loss if penalty is None else loss + penalty)

    def values_of_outputs(self, outputs: Outputs, targets: Tensor, penalty: Tensor | None = None) -> Tensor:
        """Return loss and metrics of each sample without weights, (len(sample_names), samples); each loss includes `penalty`."""
        labels, _ = self.unpacked(targets)
        metrics = (each for place, each in enumerate(self._metrics) if place not in self._balanced)
        values = torch.stack([measure(outputs, labels).float() for measure in (self.losses, *metrics)])
        if penalty is not None:
            values[0] += penalty
        return values

    def sums(self, outputs: Outputs, targets: Tensor, loss: Tensor) -> Tensor:
        """Return the sums of a mini-batch, float64 (see Problem), on the device of `loss`, its samples' mean weighted loss."""
        with torch.no_grad():
            values, by_class = self._weighed_metrics(outputs, targets)
            # Sums, not means: mini-batches and shares of ranks may have different sizes.
            sums = sums_vector(len(targets), loss, [each.sum() for each in values])
            return torch.cat([sums, *(each.sum(1).to(sums) for each in by_class)])

    def _weighed_metrics(self, outputs: Outputs, targets: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return each metric of each sample, (samples,), and `_of_classes` if a balanced accuracy needs it, times the weights."""

        def measured(targets: Tensor) -> list[Tensor]:
            labels, weights = self.unpacked(targets)
            values = [metric(outputs, labels) for metric in self._metrics]
            found = [*values, *([self._of_classes(values, labels)] if self._balanced else ())]
            return [each if weights is None else each * weights for each in found]

        rows, count = self._in_shares(measured, targets), len(self._metrics)
        return rows[:count], rows[count:]

    def _of_classes(self, values: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Return samples of each class, and those that each balanced accuracy counts as right, (rows, samples)."""
        members = labels == torch.arange(self._classes, device=labels.device)[:, None]
        return torch.cat([members, *(members & values[place] for place in self._balanced)])

    def sums_by_node(self, outputs: Outputs, targets: Tensor, losses: Tensor, counts: Tensor) -> Tensor:
        """Return the `sums` of each of n nodes, (n, sums_size).

        The samples of the nodes, with their weighted `losses` (n * width,), follow each other in n parts that are padded to the same
        width; the first `counts` (n,) of a part are real.
        """
        with torch.no_grad():
            values, by_class = self._weighed_metrics(outputs, targets)
            kinds = torch.cat(
                [torch.stack([losses, *values]).double(), *(each.double() for each in by_class)]
            )
            parts = kinds.view(len(kinds), len(counts), -1)
            real = torch.arange(parts.shape[2], device=parts.device) < counts[:, None]
            # Not a product, which would be NaN for padding with an infinite or NaN value.
            return torch.cat([counts[:, None].double(), torch.where(real, parts, 0.0).sum(2).T], 1)


def sums_vector(samples: int, loss: Tensor, counts: Sequence[Tensor]) -> Tensor:
    """Return (samples, samples times the mean loss, *counts) as float64, on the device of the loss."""
    if loss.is_cuda:  # a float of it would wait for the GPU
        total = loss.double()
        return torch.stack(
            [torch.full_like(total, samples), total * samples, *(each.double() for each in counts)]
        )
    return torch.tensor([samples, float(loss) * samples, *map(float, counts)], dtype=torch.float64)


class MultiOutputLoss:
    """The loss of each sample: the loss of the only output, or the weighted sum of the losses of all outputs.

    If `loss` is a single name, it is the loss of each output; a single user function gets the model's whole
    return value. Outputs that a model returns only in training, for example auxiliary classifiers, count only
    in training. Raises UserError if the model lacks a named output in training.
    """

    def __init__(self, loss: Loss, weights: Mapping[str, float], find: Callable[[str], PerSample]) -> None:
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


def metric_of_output(name: str, loss: Loss, find: Callable[[str, str], PerSample]) -> Measure:
    """Return the metric with this name: `metric` of the first output, or `metric@output` of another one.

    `find` returns a metric, by its name, of an output with a loss.
    """
    metric, _, wanted = name.partition("@")
    by_loss = {
        each: find(metric, each) for each in ("", *([loss] if isinstance(loss, str) else loss.values()))
    }

    def measure(outputs: Outputs, labels: Tensor) -> Tensor:
        known = outputs_by_name(outputs)
        if wanted and wanted not in known:
            raise UserError(f"{name}: the model has no output '{wanted}'; {suggest_name(wanted, known)}")
        chosen = known[wanted] if wanted else primary_output(outputs)
        return by_loss[loss_of_output(loss, outputs, wanted)](chosen, labels)

    return measure


def loss_of_output(loss: Loss, outputs: Outputs, output: str = "") -> str:
    """Return the loss of an output, by default of the model's first; an empty string if the output has no loss.

    `loss` is the loss of all outputs, or has a loss by output.
    """
    if isinstance(loss, str):
        return loss
    return loss.get(output or next(iter(_named_outputs(outputs, loss))), "")


def _named_outputs(outputs: Outputs, losses: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the outputs by name; in evaluation, a model may return the main output alone, without its name.

    Its name is then `0`, or else the first name in `losses`.
    """
    if isinstance(outputs, Tensor) and losses and "0" not in losses:
        return {next(iter(losses)): outputs}
    return outputs_by_name(outputs)


def primary_output(outputs: Outputs) -> Tensor:
    """Return the output that is used unless another one is named: the first."""
    return outputs if isinstance(outputs, Tensor) else next(iter(outputs_by_name(outputs).values()))


def outputs_by_name(outputs: Outputs) -> dict[str, Tensor]:
    """Return a model's outputs by name; the outputs in a tuple are named 0, 1, ..."""
    if isinstance(outputs, Tensor):
        return {"0": outputs}
    if isinstance(outputs, Mapping):
        return {str(name): tensor for name, tensor in outputs.items()}
    return {str(place): tensor for place, tensor in enumerate(outputs)}
