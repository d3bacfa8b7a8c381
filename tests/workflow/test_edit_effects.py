"""Each key of the experiment file has a declared effect of an edit, and the edit has this effect."""

import json
from pathlib import Path

import pytest
from helpers.trial_results import write_result

from nnlo_lib.config import ConfigModel, Experiment, Run, block_types, merge_settings
from nnlo_lib.config.base import EditEffect, edit_effects, keys_with
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.space.validate import SHARED_DATA_KEYS
from nnlo_lib.search.study.storage import freeze_or_verify_settings
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.search_plan import SearchPlan

BASE = {
    "parallel": {"transport": "simulated", "ranks": 2},
    "search": {"space": {"train.optimizer.lr": [0.1, 0.2]}, "method": {"name": "grid"}},
}
# One edit of each key, or of one key of a section.
EDITS = {
    "data.validation": 0.3, "data.stratify": False, "data.split_by": "shard", "data.partition": {"name": "by_class"}, "data.normalize": "standard", "data.crop": 6, "data.stream": {"window": 4}, "data.augment": {"flip": 0.5}, "data.placement": "device", "data.stage_to": "/tmp", "data.stage_command": "cp {source} {target}",
    "model.name": "simplecnn", "model.args": {"hidden": 3}, "model.weights": "w.pt", "model.custom_objects": {"Own": f"{__file__}:Own"},
    "model.weights_except": ("fc.",), "model.trust": True, "train.epochs": 11, "train.steps_per_epoch": 5, "train.batch_size": 48,
    "train.dealing": "dynamic", "train.accumulate": 2, "train.clip_norm": 1.0, "train.ema": {"decay": 0.9},
    "train.precision": "float64",
    "train.compile": True, "train.deterministic": False, "train.channels_last": False, "train.optimizer": {"name": "adam"},
    "train.schedule": {"name": "cosine"}, "train.warm_up": {"epochs": 1}, "train.scale_lr": "linear",
    "train.early_stopping": {"patience": 3}, "train.target": {"value": 0.9}, "train.restore_best": "val_loss",
    "train.validate_every": 5, "train.evaluate_before": True, "problem": {"name": "regression"}, "loss": "nll",
    "loss_weights": {"a": 2.0}, "metrics": ("top2_accuracy",), "algorithm": {"name": "average"}, "topology": {"name": "cycle"},
    "compression": {"name": "fp16"}, "parallel.ranks": 3, "parallel.processes_per_worker": 2,
    "parallel.threads_per_rank": 2, "parallel.gpus_per_rank": 1, "parallel.ranks_per_gpu": 2, "parallel.master_gpu": False,
    "parallel.bind": "core", "parallel.gpu_exchange": "host", "parallel.sync_batch_norm": True, "parallel.transport": "mpi",
    "parallel.peer_timeout": 9.0, "parallel.simulation": {"latency": 1.0}, "checkpoint": {"every": "1 epoch"},
    "observe": {"trace": True}, "resources": {"runtime": 7}, "name": "other", "seeds": [0, 1], "folds": 3,
    "runs": {"more": {}}, "search.space": {"train.optimizer.lr": [0.3]}, "search.method": {"name": "random"},
    "search.trials": 3, "search.parallel": 3, "search.order": "as_they_come", "search.seed": 5, "search.start": [{"train.optimizer.lr": 0.05}], "search.known": "known.csv", "search.folds": {"k": 2},
    "search.objective.metric": "val_accuracy", "search.objective.direction": "maximize",
    "search.objective.epoch": "last", "search.objective.target": 0.1, "search.objective.max_seconds": 9.0,
    "search.objective.max_parameters": 9, "search.fidelity": {"name": "median"}, "search.budget": {"hours": 1.0},
    "search.blocks": {"ahead": 2}, "search.choose": "knee", "search.tasks_per_job": 2,
    "search.objective.others": [{"metric": "parameters"}],
}  # fmt: skip
STORE_KEYS = {f"data.{key}" for key in SHARED_DATA_KEYS}  # of another store, which tests/data covers
EDIT_EFFECTS = edit_effects(Experiment)
RUN_EFFECTS = (EditEffect.RETRAIN, EditEffect.RESUME, EditEffect.EVALUATE, EditEffect.NEXT_ATTEMPT)


def leaves(section: type[ConfigModel], above: str = ""):
    """Yield the dotted keys of a section; a value of several types counts as one key."""
    for name, field in section.model_fields.items():
        inner = list(block_types(field.annotation))
        is_section = len(inner) == 1 and field.annotation in (inner[0], inner[0] | None)
        yield from leaves(inner[0], f"{above}{name}.") if is_section else [f"{above}{name}"]


def declared(key: str) -> list[str]:
    parts = key.split(".")
    return [above for size in range(len(parts)) if (above := ".".join(parts[: size + 1])) in EDIT_EFFECTS]


def edited(model: ConfigModel, key: str, value: object) -> ConfigModel:
    """Return the model with another value, without the checks of combinations: only the effect matters here."""
    section, _, rest = key.partition(".")
    if rest:
        value = edited(getattr(model, section), rest, value)
    elif isinstance(value, dict) and section != "runs":
        value = (
            type(model)
            .model_validate(merge_settings(required(model, section), {section: value}))
            .__dict__[section]
        )
    return model.model_copy(update={section: value})


def required(model: ConfigModel, section: str) -> dict[str, object]:
    """Return the settings without which another section would be refused."""
    if section == "custom_objects":
        return {"name": str(Path(__file__).parents[1] / "models/keras/mnist_keras2.json")}
    if section == "stream":
        return {"partition": {"name": "contiguous"}}
    return BASE if isinstance(model, Experiment) else {}


def test_each_key_has_one_effect_and_each_effect_an_edit():
    keys = list(leaves(Experiment))
    assert {key: declared(key) for key in keys if len(declared(key)) != 1} == {}
    assert {row for row in EDIT_EFFECTS if not any(row in declared(key) for key in keys)} == set()
    assert set(EDITS) | STORE_KEYS == set(EDIT_EFFECTS)


RUN_EDITS = [key for key in EDITS if EDIT_EFFECTS[key] in RUN_EFFECTS and not key.startswith("search.")]


@pytest.mark.parametrize("key", RUN_EDITS)
def test_an_edit_of_a_run_has_its_effect(key, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    base = Run.model_validate({"parallel": BASE["parallel"]})

    def fingerprint(run):
        return Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint

    other = edited(base, key, EDITS[key])
    assert other != base
    effect = EDIT_EFFECTS[key]
    # A checkpoint has sums of the metrics, so that an unfinished training starts again.
    assert (fingerprint(other) != fingerprint(base)) == (effect in (EditEffect.RETRAIN, EditEffect.EVALUATE))
    assert (other.result_settings == base.result_settings) == (effect is EditEffect.NEXT_ATTEMPT)
    is_kept = effect in (EditEffect.NEXT_ATTEMPT, EditEffect.EVALUATE)
    assert (other.training_settings == base.training_settings) == is_kept


@pytest.mark.parametrize("key", EDITS)
def test_an_edit_of_a_search_is_refused_if_it_changes_the_trials(key, tmp_path):
    base = Experiment.model_validate(BASE)
    freeze_or_verify_settings(tmp_path, base)
    write_result(tmp_path)
    other = edited(base, key, EDITS[key])
    assert other != base
    if EDIT_EFFECTS[key] in (EditEffect.RETRAIN, EditEffect.RESUME, EditEffect.EVALUATE, EditEffect.FROZEN):
        with pytest.raises(UserError, match=rf"the search was started with other settings: .*{key}"):
            freeze_or_verify_settings(tmp_path, other)
    else:
        freeze_or_verify_settings(tmp_path, other)


def test_a_search_of_a_version_without_a_key_goes_on(tmp_path):
    base = Experiment.model_validate(BASE)
    freeze_or_verify_settings(tmp_path, base)
    write_result(tmp_path)
    path = SearchPaths(tmp_path).settings
    settings = json.loads(path.read_text())
    del settings["train"]["accumulate"], settings["problem"]["mixup"]
    path.write_text(json.dumps(settings))
    freeze_or_verify_settings(tmp_path, base)
    with pytest.raises(UserError, match=r"other settings: train\.accumulate was null and is 2; restore"):
        freeze_or_verify_settings(tmp_path, edited(base, "train.accumulate", 2))


# `search.blocks` is of the executor mpi alone.
@pytest.mark.parametrize("key", sorted({*keys_with(Experiment, EditEffect.SEARCH_END)} - {"search.blocks"}))
def test_an_edit_of_the_end_of_a_search_changes_a_parameter_of_its_rule(key):
    base = Experiment.model_validate(BASE)
    before, after = (SearchPlan(each, False).end_conditions for each in (base, edited(base, key, EDITS[key])))
    assert before != after
