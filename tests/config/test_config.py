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


LARGER = r"\{metric: val_gini, better: larger\}"
WATCHERS = [
    ({"train": {"early_stopping": {"metric": "val_gini"}}}, r"set train\.early_stopping\.better"),
    ({"train": {"restore_best": "val_gini"}}, rf"set train\.restore_best: {LARGER}"),
    ({"train": {"schedule": {"name": "plateau", "metric": "val_gini"}}}, r"set train\.schedule\.better"),
    ({"checkpoint": {"best": "gini"}}, rf"set checkpoint\.best: {LARGER}"),
]


@pytest.fixture
def metric(tmp_path):
    """Return a function that validates an experiment with a metric of the user."""
    (tmp_path / "mine.py").write_text(
        "def gini(outputs, targets): ...\ndef gini_score(outputs, targets): ...\n"
    )
    return lambda name, settings: experiment(metrics=[f"{tmp_path / 'mine.py'}:{name}"], **settings)


@pytest.mark.parametrize(("settings", "message"), WATCHERS)
def test_a_watched_metric_of_the_user_needs_a_direction(metric, settings, message):
    """A larger value is better; without a direction, the smallest would be chosen in silence."""
    with pytest.raises(
        ValidationError, match=r"does not say whether smaller or larger values are better"
    ) as error:
        metric("gini", settings)
    assert re.search(message, str(error.value), re.DOTALL)
    metric("gini_score", json.loads(json.dumps(settings).replace("gini", "gini_score")))


def test_a_direction_of_its_own_suffices(metric):
    rule = {"metric": "val_gini", "better": "larger"}
    plateau = {"name": "plateau", **rule}
    for train in ({"early_stopping": rule}, {"restore_best": rule}, {"schedule": plateau}):
        metric("gini", {"train": train})
    metric("gini", {"checkpoint": {"best": rule}})


OBJECTIVE = {"space": {"train.epochs": [1]}, "objective": {"metric": "val_accuracy", "target": 99}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"train": {"target": {"value": 70.0}}},
            "val_accuracy is between 0 and 1, got 70; write 0.7 for 70 %",
        ),
        ({"train": {"target": "val_acc,>,97"}}, "got 97; write 0.97 for 97 %"),
        (
            {"train": {"target": {"metric": "train_top5_accuracy", "value": -0.1}}},
            "got -0.1; write a fraction",
        ),
        ({"search": OBJECTIVE}, "got 99; write 0.99 for 99 %"),
    ],
)
def test_accuracies_in_per_cent_are_refused(settings, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        experiment(**settings)


@pytest.mark.parametrize("target", [{"value": 1.0}, {"metric": "val_loss", "value": 70.0}, {"value": 0}])
def test_other_targets_are_accepted(target):
    assert experiment(train={"target": target}).train.target.value == target["value"]


def resources(parallel, **asked):
    return RunResources(Run.model_validate({"parallel": parallel, "resources": asked}))


@pytest.mark.parametrize(
    ("parallel", "wanted"),
    [
        ({"ranks": 4, "threads_per_rank": 3}, (4, 12, 2)),
        ({"ranks": 8, "transport": "simulated"}, (1, 1, 1)),
    ],
)
def test_processes_cores_and_nodes(parallel, wanted):
    asked = resources(parallel, nodes=2)
    assert (asked.processes, asked.cores, asked.nodes) == wanted


@pytest.mark.parametrize(
    ("parallel", "wanted"),
    [
        ({"ranks": 1, "gpus_per_rank": 1, "ranks_per_gpu": 3}, 3),
        ({"ranks": 4, "gpus_per_rank": 1}, 1),
        ({"ranks": 1}, 1),
    ],
)
def test_trainings_that_share_a_gpu(parallel, wanted):
    assert resources(parallel).trainings_per_gpu == wanted


def test_the_site_gets_only_set_resources():
    assert not any(resources({"ranks": 2}).site.values())
    asked = resources({"ranks": 2, "gpus_per_rank": 1}, partition="short", account="me").site
    assert asked == {
        "slurm_partition": "short", "slurm_account": "me", "lsf_queue": "short", "lsf_project": "me",
        "gpu": 2, "tasks_per_gpu": 1,
    }  # fmt: skip
