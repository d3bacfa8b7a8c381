"""Effect of an edit of each key of the experiment file on results that exist already."""

from collections.abc import Iterator
from enum import Enum
from typing import Any


class EditEffect(Enum):
    """What an edit causes; each value names the effect in the documentation."""

    RETRAIN = "retrain"
    RESUME = "resume"
    SAME_DATA = "same data"
    NEXT_ATTEMPT = "next attempt"
    JOBS = "other jobs"
    SEARCH_END = "end of the search"
    FROZEN = "frozen"


_KEYS = {
    EditEffect.RETRAIN: (
        "data.dataset", "data.reader", "data.format", "data.shard_size", "data.validation", "data.stratify", "data.split_by",
        "data.partition", "data.normalize", "data.crop", "data.augment", "model.name", "model.args",
        "model.custom_objects", "model.weights", "model.weights_except", "train.steps_per_epoch", "train.batch_size",
        "train.dealing", "train.accumulate", "train.clip_norm", "train.precision", "train.compile", "train.channels_last",
        "train.optimizer", "train.schedule", "train.warm_up", "train.scale_lr", "train.early_stopping", "train.target",
        "train.restore_best", "train.validate_every", "train.evaluate_before", "problem", "loss", "loss_weights", "metrics",
        "algorithm", "topology", "compression", "parallel.processes_per_worker", "parallel.threads_per_rank",
        "parallel.gpus_per_rank", "parallel.sync_batch_norm", "parallel.simulation",
    ),
    EditEffect.RESUME: ("train.epochs", "parallel.ranks", "parallel.transport"),
    EditEffect.SAME_DATA: ("data.source",),
    EditEffect.NEXT_ATTEMPT: (
        "data.stage_to", "data.stage_command", "parallel.ranks_per_gpu", "parallel.master_gpu", "parallel.bind", "parallel.gpu_exchange",
        "parallel.peer_timeout", "model.trust", "checkpoint", "observe", "resources",
    ),
    EditEffect.JOBS: ("name", "seeds", "folds", "runs"),
    EditEffect.SEARCH_END: ("search.trials", "search.parallel", "search.objective.target", "search.budget", "search.blocks"),
    EditEffect.FROZEN: (
        "search.space", "search.method", "search.order", "search.seed", "search.folds", "search.fidelity",
        "search.objective.metric", "search.objective.direction", "search.objective.epoch", "search.objective.max_seconds",
        "search.objective.max_parameters",
    ),
}  # fmt: skip
EDIT_EFFECTS = {key: effect for effect, keys in _KEYS.items() for key in keys}  # by key, or by section


def keys_with(effect: EditEffect) -> tuple[str, ...]:
    """Return the keys and sections with an effect."""
    return _KEYS[effect]


def without_keys(settings: Any, keys: tuple[str, ...]) -> Any:
    """Return nested settings without some dotted keys."""
    if not isinstance(settings, dict):
        return settings
    return {
        name: without_keys(value, tuple(_below(name, keys)))
        for name, value in settings.items()
        if name not in keys
    }


def _below(name: str, keys: tuple[str, ...]) -> Iterator[str]:
    return (key.removeprefix(f"{name}.") for key in keys if key.startswith(f"{name}."))
