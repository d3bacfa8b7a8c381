"""The quantity behind a metric's name: the loss function of a run and the settings that change it."""

from typing import Any

from nnlo_lib.state.finished_run import FinishedRun

# Settings of a problem that change a loss, the value without effect, and their text.
LOSS_SETTINGS = {
    "label_smoothing": (0.0, "label smoothing"),
    "gradient_penalty": (0.0, "gradient penalty"),
    "energy_weight": (None, "energy weight"),
}


def quantity_name(job: FinishedRun, metric: str) -> str:
    """Return the loss function and the settings on which a metric depends, or an empty string.

    Values of the same metric with different texts are different quantities and belong on different axes.

    Args:
        job: training with the metric.
        metric: column of the history, for example `train_loss`.
    """
    split, _, name = metric.partition("_")
    is_gan = job.config_section("problem").get("name") == "gan"
    if name == "loss" or (is_gan and split in ("train", "val")):
        return _loss_name(job, split, is_gan and name == "loss")
    if name.split("_")[-1] == "huber":
        return _huber(job)
    return ""


def _loss_name(job: FinishedRun, split: str, is_sum: bool) -> str:
    problem, loss = job.config_section("problem"), job.summary["config"].get("loss")
    if not loss:
        return ""
    settings = [
        f"{text} {problem[key]:g}"
        for key, (without, text) in LOSS_SETTINGS.items()
        # The validation of a GAN leaves out the gradient penalty.
        if problem.get(key, without) != without and (key, split) != ("gradient_penalty", "val")
    ]
    names = [f"{loss_text(loss)}, critic + generator" if is_sum else loss_text(loss), *_weights(job)]
    return ", ".join([*names, *settings, *([_huber(job)] if "huber" in loss_text(loss) else [])])


def loss_text(loss: Any) -> str:
    """Return a loss, or the losses of several outputs, as text."""
    if isinstance(loss, dict):
        return ", ".join(f"{output}: {name}" for output, name in loss.items())
    return str(loss).rpartition(":")[2]


def _weights(job: FinishedRun) -> list[str]:
    weights = job.config_section("loss_weights")
    return (
        [f"weights {', '.join(f'{output}: {value:g}' for output, value in weights.items())}"]
        if weights
        else []
    )


def _huber(job: FinishedRun) -> str:
    delta = job.config_section("problem").get("huber_delta")
    return "" if delta is None else f"delta {delta:g}"
