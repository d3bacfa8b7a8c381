"""Settings of runs and experiments: defaults, hash, jobs, variants, merging, watched metrics, resources."""

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nnlo_lib.config import Experiment, Run, block_types, merge_settings, suggest_name
from nnlo_lib.config.algorithm import AllReduceConfig, DownpourConfig
from nnlo_lib.config.base import Excludes, Requires
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.optimizer import AdamConfig, SGDConfig


def run(**changes: object) -> Run:
    return Run.model_validate(merge_settings(Run().model_dump(), changes))


def experiment(**settings: object) -> Experiment:
    return Experiment.model_validate(settings)


def test_blocks_are_frozen():
    for block, key in ((Experiment(), "name"), (Run().train, "epochs"), (SGDConfig(), "lr")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(block, key, 1)


def test_every_default_is_valid_and_limits_name_keys_of_the_section():
    assert experiment() == Experiment.model_validate(Experiment().model_dump())
    seen = [Experiment]
    for block in seen:
        for key, field in block.model_fields.items():
            limits = [each.key for each in field.metadata if isinstance(each, Requires | Excludes)]
            assert {*limits} <= {*block.model_fields} - {key}, f"{block.__name__}.{key}"
            seen += [inner for inner in block_types(field.annotation) if inner not in seen]
        assert block.__doc__
    assert {SGDConfig, AdamConfig, AllReduceConfig, DownpourConfig} <= set(seen)


UNCHANGED = [{}, {"resources": {"runtime": 5, "mem_mb": 9, "partition": "gpu", "account": "me"}}]
CHANGED = [
    {"train": {"optimizer": {"lr": 0.5}}},
    {"train": {"epochs": 11}},
    {"train": {"optimizer": {"name": "nadam"}}},
    {"model": {"args": {"hidden": 3}}},
    {"data": {"validation": 0.2}},
    {"algorithm": {"name": "downpour"}},
    {"parallel": {"ranks": 3}},
    {"loss": "mse"},
]


def test_the_hash_depends_on_the_settings_that_determine_the_result():
    assert {run(**changes).hash for changes in UNCHANGED} == {Run().hash}
    assert len({run(**changes).hash for changes in [{}, *CHANGED]}) == len(CHANGED) + 1


def test_jobs_are_the_product_of_runs_seeds_and_folds():
    varied = experiment(runs={"a": {}, "b": {}}, seeds=[3, 1], folds=2)
    expected = itertools.product(["a", "b"], [3, 1], [0, 1])
    assert [(job.run, job.seed, job.fold) for job in varied.jobs()] == list(expected)
    assert next(varied.jobs()).path == "a/seed-3/fold-0"


def test_without_folds_and_runs_there_is_the_base():
    (job,) = experiment(algorithm={"name": "downpour"}).jobs()
    assert (job.run, job.seed, job.fold, job.path) == ("downpour", 0, None, "downpour/seed-0")


def test_variants_override_the_base():
    varied = experiment(
        train={"epochs": 3, "optimizer": {"name": "adam", "lr": 0.5, "beta1": 0.8}},
        runs={
            "same": {},
            "slower": {"train": {"optimizer": {"lr": 0.1}}},
            "again": {"train": {"optimizer": {"name": "adam", "lr": 0.1}}},
            "other": {"train": {"optimizer": {"name": "sgd"}}},
        },
    )
    optimizers = {name: variant.train.optimizer for name, variant in varied.variants.items()}
    assert optimizers["same"] == AdamConfig(lr=0.5, beta1=0.8)
    assert optimizers["slower"] == optimizers["again"] == AdamConfig(lr=0.1, beta1=0.8)
    assert optimizers["other"] == SGDConfig()
    assert {variant.train.epochs for variant in varied.variants.values()} == {3}


LEAF = st.none() | st.integers() | st.lists(st.integers(), max_size=2)


def block(*choices: str) -> st.SearchStrategy[dict[str, object]]:
    """Draw sections of one structure in which each key may be absent; `choices` are the possible names."""
    inner = st.fixed_dictionaries({}, optional={"c": LEAF, "d": LEAF})
    name = {"name": st.sampled_from(choices)} if choices else {}
    return st.fixed_dictionaries({}, optional={"a": LEAF, "b": inner} | name)


@given(block(), block(), block())
def test_merging_is_associative_and_the_last_value_counts(base, middle, last):
    assert merge_settings(merge_settings(base, middle), last) == merge_settings(
        base, merge_settings(middle, last)
    )
    assert merge_settings(base, {}) == base
    assert merge_settings({}, base) == base
    assert merge_settings(merge_settings(base, last), last) == merge_settings(base, last)


@given(block("x", "y"), block("x", "y"))
def test_a_new_name_replaces_its_section(base, changes):
    merged = merge_settings({"outer": base, "kept": 1}, {"outer": changes})
    assert merged["kept"] == 1
    if "name" in changes and changes["name"] != base.get("name"):
        assert merged["outer"] == changes
    else:
        assert set(merged["outer"]) == set(base) | set(changes)


@given(block("x", "y"), block("x", "y"))
def test_merging_leaves_both_sides_alone(base, changes):
    before = repr((base, changes))
    merge_settings({"outer": base}, {"outer": changes})
    assert repr((base, changes)) == before


def test_nearest_name_or_all():
    assert suggest_name("epocs", ["epochs", "seeds"]) == "did you mean 'epochs'?"
    assert suggest_name("zzz", ["seeds", "epochs"]) == "known: epochs, seeds"


OBJECTIVE = {"space": {"train.epochs": [1]}, "objective": {"metric": "val_accuracy", "target": 99}}
RULE, DIRECTION = {"metric": "val_gini", "better": "larger"}, "{metric: val_gini, better: larger}, or smaller"
# Settings of a metric `gini`, and the remedy of the refusal: a larger value is better, and its name does not say it.
WATCHERS = {
    "train.early_stopping.better": {"train": {"early_stopping": {"metric": "val_gini"}}},
    f"train.restore_best: {DIRECTION}": {"train": {"restore_best": "val_gini"}},
    "train.schedule.better": {"train": {"schedule": {"name": "plateau", "metric": "val_gini"}}},
    f"checkpoint.best: {DIRECTION}": {"checkpoint": {"best": "gini"}},
}
PER_CENT = {
    "val_accuracy is between 0 and 1, got 70; write 0.7 for 70 %": {"train": {"target": {"value": 70.0}}},
    "got 97; write 0.97 for 97 %": {"train": {"target": "val_acc,>,97"}},
    "got -0.1; write a fraction": {"train": {"target": {"metric": "train_top5_accuracy", "value": -0.1}}},
    "got 99; write 0.99 for 99 %": {"search": OBJECTIVE},
}
ACCEPTED = [
    {"train": {"early_stopping": RULE, "restore_best": RULE, "schedule": {"name": "plateau", **RULE}}, "checkpoint": {"best": RULE}},
    {"train": {"target": {"value": 1.0}}}, {"train": {"target": {"metric": "val_loss", "value": 70.0}}}, {"train": {"target": {"value": 0}}},
    *(json.loads(json.dumps(each).replace("gini", "gini_score")) for each in WATCHERS.values()),
]  # fmt: skip


@pytest.fixture
def watched(tmp_path):
    """Return a function that validates an experiment with metrics of the user."""
    (tmp_path / "mine.py").write_text(
        "def gini(outputs, targets): ...\ndef gini_score(outputs, targets): ...\n"
    )
    names = [
        "accuracy",
        "top5_accuracy",
        *(f"{tmp_path / 'mine.py'}:{name}" for name in ("gini", "gini_score")),
    ]
    return lambda settings: experiment(metrics=names, **settings)


@pytest.mark.parametrize(("message", "settings"), (WATCHERS | PER_CENT).items())
def test_a_rule_without_a_direction_or_in_per_cent_is_refused(watched, message, settings):
    sentence = "smaller or larger values are better; set " * (message in WATCHERS) + message
    with pytest.raises(ValidationError, match=re.escape(sentence)):
        watched(settings)


@pytest.mark.parametrize("settings", ACCEPTED)
def test_other_rules_are_accepted(watched, settings):
    watched(settings)


NO_SITE = {
    "slurm_partition": "",
    "slurm_account": "",
    "lsf_queue": "",
    "lsf_project": "",
    "gpu": 0,
    "tasks_per_gpu": 0,
}
SITE = {"slurm_partition": "short", "slurm_account": "me", "lsf_queue": "short", "lsf_project": "me", "gpu": 2, "tasks_per_gpu": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("parallel", "asked", "wanted"),
    [
        ({"ranks": 4, "threads_per_rank": 3}, {"nodes": 2}, {"processes": 4, "cores": 12, "nodes": 2}),
        ({"ranks": 8, "transport": "simulated"}, {"nodes": 2}, {"processes": 1, "cores": 1, "nodes": 1}),
        ({"ranks": 1, "gpus_per_rank": 1, "ranks_per_gpu": 3}, {}, {"trainings_per_gpu": 3}),
        ({"ranks": 4, "gpus_per_rank": 1}, {}, {"trainings_per_gpu": 1}),
        ({"ranks": 1}, {}, {"trainings_per_gpu": 1}),
        ({"ranks": 2}, {}, {"site": NO_SITE}),
        ({"ranks": 2, "gpus_per_rank": 1}, {"partition": "short", "account": "me"}, {"site": SITE}),
    ],
)
def test_resources_of_a_training(parallel, asked, wanted):
    found = RunResources(Run.model_validate({"parallel": parallel, "resources": asked}))
    assert {key: getattr(found, key) for key in wanted} == wanted
