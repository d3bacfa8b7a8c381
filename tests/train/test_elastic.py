"""Resuming with another number of ranks: the sample order stays, and each sample is used exactly once per epoch."""

import itertools
import json
import re
from dataclasses import replace

import pytest
import torch
from helpers.observed_training import watched
from helpers.training_here import simulate, training_here
from helpers.training_process import StopAfter
from safetensors.torch import load_file

from nnlo_lib.api import load_experiment
from nnlo_lib.checkpoint.checkpointer import Checkpointer
from nnlo_lib.config import Experiment, Run, merge_settings
from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.config.rules.combinations import reason_not_elastic
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.sampler import ShufflePurpose, shuffled
from nnlo_lib.data.store.split import Split
from nnlo_lib.launch.attempt_recovery import read_progress
from nnlo_lib.models.factory import build_model
from nnlo_lib.reliability.findings import load_finished_run
from nnlo_lib.reliability.reproduce import check_reproducibility
from nnlo_lib.state.attempts import Attempt, AttemptStatistics
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

BATCH, EPOCHS, LR, MOMENTUM = 10, 3, 0.05, 0.5
NOW = "2026-01-01T00:00:00+00:00"
UNEQUAL = {"speeds": {1: 0.6}, "jitter": 0.3}
ELASTIC = {
    "allreduce": {},
    "average": {"sync_every": 5},
    "diloco": {"sync_every": 5},
    "diloco, streaming": {"sync_every": 5, "fragments": 2, "overlap": 4},
    "downpour": {},
    "downpour, synchronous": {"synchronous": True, "sync_every": 2},
    "easgd": {"sync_every": 2},
    "easgd, synchronous": {"synchronous": True, "sync_every": 2},
    "easgd, momentum": {"sync_every": 2, "momentum": 0.5, "lr": 0.05},
}


def task(folder, manifest, ranks, name, **settings):
    run = {
        "algorithm": {"name": name, **settings},
        "data": {"validation": 0.5},
        "model": {"name": "simplemlp", "args": {"hidden": 16, "layers": 1}},
        "train": {"epochs": EPOCHS, "batch_size": BATCH,
                  "optimizer": {"name": "sgd", "lr": LR, "momentum": MOMENTUM}},
        "parallel": {"ranks": ranks, "transport": "simulated", "simulation": UNEQUAL},
    }  # fmt: skip
    run = Plan.of(Experiment.model_validate(run)).run(name)
    return Task("t", "elastic", run, 0, None, 1, manifest, folder)


def lines(job, name):
    return [json.loads(line) for line in (job.state / f"{name}.jsonl").read_text().splitlines()]


def test_every_elastic_algorithm_is_here():
    assert {case.partition(",")[0] for case in ELASTIC} == {
        name for name in ALGORITHMS if ALGORITHMS[name].elastic
    }


MORE = ("downpour, synchronous", "easgd", "easgd, synchronous")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.exhaustive) if case in MORE else case for case in ELASTIC]
)
def test_ranks_come_and_go_and_each_sample_is_used_once(tmp_path, manifest, case):
    name = case.partition(",")[0]
    for ranks, calls in zip((4, 3, 6, 3), (50, 70, 120, 10**9), strict=True):
        ranks = min(ranks + ALGORITHMS[name].supports_server_tree, 6)
        job = task(tmp_path, manifest, ranks, name, **ELASTIC[case])
        finished = train_simulated(job, StopAfter(calls))
    assert finished
    assert "resuming with 6 ranks" in (tmp_path / "log.txt").read_text()
    uses = [(row["missed"], row["repeated"], row["samples"]) for row in lines(job, "ledger")]
    assert uses == [(0, 0, 721)] * EPOCHS
    assert [row["samples"] for row in lines(job, "history")] == [721 * (epoch + 1) for epoch in range(EPOCHS)]
    assert lines(job, "history")[-1]["val_accuracy"] > 0.4


def test_allreduce_takes_the_steps_of_one_process_that_changes_its_batch(tmp_path, manifest):
    first, second = (task(tmp_path, manifest, ranks, "allreduce") for ranks in (2, 5))
    assert not train_simulated(first, StopAfter(13))
    simulate(second)
    trained = load_file(tmp_path / "model.safetensors")
    taken = 2 * BATCH * steps_before(tmp_path)
    assert taken % (5 * BATCH)  # the first step after the change of ranks is shorter
    grid = sorted({*range(0, taken, 2 * BATCH), taken, *range(taken - taken % 50 + 50, 721, 50), 721})
    cuts = [grid] + [[*range(0, 721, 50), 721]] * (EPOCHS - 1)
    for name, value in alone(first, cuts).items():
        torch.testing.assert_close(trained[name], value, rtol=1e-4, atol=1e-5)


def steps_before(folder):
    """Return the number of steps of the first ranks, read from the log."""
    return int(re.search(r"stopped at epoch 0, step (\d+):", (folder / "log.txt").read_text())[1])


def alone(job, cuts):
    """Train in one process; return the weights. `cuts`: for each epoch, the ends of the batches in the sample order."""
    data = TrainingData(job, 1)
    tensors = Preprocessor(data.manifest, job.run.data, "cpu")
    model = build_model(job.run.model.name, job.run.model.args, tensors.shape, data.outputs, job.seed)
    optimizer = torch.optim.SGD(model.parameters(), LR, MOMENTUM)
    split = Split(data.manifest, "train")
    for epoch, ends in enumerate(cuts):
        order = shuffled(data.worker_samples[0], job.seed, ShufflePurpose.EPOCH, epoch)
        for start, end in itertools.pairwise(ends):
            inputs, labels = tensors(*split.take(order[start:end]))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(*inputs), labels).backward()
            optimizer.step()
    return model.state_dict()


EACH = "each rank of {} has a state that other ranks cannot take over"
DOWNPOUR = {"algorithm": {"name": "downpour"}}
REFUSED = {
    **{name: ({"algorithm": {"name": name}}, EACH.format(name)) for name in ("gosgd", "dsgd", "gem")},
    "adpsgd": ({"algorithm": {"name": "adpsgd"}, "topology": {"name": "path"}}, EACH.format("adpsgd")),
    "separate samples": (DOWNPOUR | {"data": {"partition": {"name": "by_class"}}}, "its workers have separate samples (data.partition)"),
    "a number of steps": (
        DOWNPOUR | {"train": {"steps_per_epoch": 4}},
        "with train.steps_per_epoch, the samples of an epoch depend on the number of workers",
    ),
    "compression": (DOWNPOUR | {"compression": {"name": "sign"}}, "each rank keeps the error feedback of its compressed vectors"),
    "groups": (DOWNPOUR | {"parallel": {"processes_per_worker": 2}}, "a worker consists of several ranks (parallel.processes_per_worker)"),
    "clients": ({"algorithm": {"name": "average", "participation": 0.5}}, "only some of its ranks take part in a round (algorithm.participation)"),
    "several masters": ({"algorithm": {"name": "downpour", "masters": 2}}, "it has several servers (algorithm.masters)"),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "reason"), REFUSED.values(), ids=REFUSED)
def test_why_another_number_of_ranks_is_refused(settings, reason):
    ranks = {"parallel": {"ranks": 5} | settings.get("parallel", {})}
    run = Plan.of(Experiment.model_validate(settings | ranks)).run(settings["algorithm"]["name"])
    assert reason_not_elastic(run) == reason


def test_another_number_of_ranks_is_refused_and_the_checkpoint_stays(tmp_path):
    run = training_here(tmp_path, {"name": "gosgd"}, 5, model={"name": "simplemlp", "args": {"hidden": 8}})
    run.finish(expect=75, calls=12)
    saved = {path: path.read_bytes() for path in tmp_path.rglob("checkpoints/*/*")}
    assert saved
    said = run.finish("--set", "parallel.ranks=7", expect=2)
    assert "Traceback" not in said
    sentence = (
        f"was written by 5 ranks and cannot resume with 7: {EACH.format('gosgd')}; use 5 ranks, or delete "
    )
    assert said.splitlines()[-1].endswith(f"{sentence}results/t/gosgd/seed-0/state to start again")
    assert {path: path.read_bytes() for path in tmp_path.rglob("checkpoints/*/*")} == saved


def went_through(folder, manifest, sizes, calls, name="allreduce", shard=None, **train):
    """Train one segment per number of ranks and of calls of the stop flag; `shard`: key of the algorithm, if not None.

    Returns the last task and the attempts that a launcher would record.
    """
    attempts = []
    for number, (ranks, left) in enumerate(zip(sizes, calls, strict=True), 1):
        job = task(folder, manifest, ranks, name, **({"shard": shard} if shard else {}))
        job = replace(job, run=Run.model_validate(merge_settings(job.run.settings, {"train": train})))
        finished = train_simulated(job, StopAfter(left))
        reason, steps = "finished" if finished else "preempted", read_progress(job.state)
        attempts.append(Attempt(number, NOW, NOW, 1.0, "here", None, reason, None, *steps, ranks))
    assert finished
    return job, attempts


def test_parts_of_the_moments_are_cut_again_for_other_ranks(tmp_path, manifest):
    """Adam's moments and counts, also if the last of six ranks has no parameter of its own; compared with whole moments."""
    for shard in ("none", "optimizer"):
        (tmp_path / shard).mkdir()
        groups = [{"match": "*bias", "lr": 0.1, "weight_decay": 0.0}]
        train = {"epochs": 1, "optimizer": {"name": "adamw", "groups": groups}}
        went_through(tmp_path / shard, manifest, (2, 6, 3), (20, 30, 10**9), shard=shard, **train)
    whole, parts = ((tmp_path / shard / "model.safetensors").read_bytes() for shard in ("none", "optimizer"))
    assert parts == whole


@pytest.mark.parametrize("name", ["allreduce", "downpour"])
def test_steps_go_on_counting_and_none_is_done_again(tmp_path, manifest, name):
    job, attempts = went_through(tmp_path, manifest, (3, 5, 2), (100, 60, 10**9), name)
    steps = [row["step"] for row in lines(job, "history")]
    assert steps == sorted(set(steps))
    if name == "allreduce":  # without synchronization, a worker may lag behind the first one
        assert [each.start for each in attempts] == [0, *(each.saved for each in attempts[:-1])]
        assert AttemptStatistics(attempts, None).lost_steps == 0
    assert attempts[-1].saved == steps[-1] == json.loads((tmp_path / "summary.json").read_text())["steps"]


def test_the_summary_has_the_metrics_of_the_published_weights_after_ranks_have_come(tmp_path, manifest):
    train = {"restore_best": "val_loss", "optimizer": {"name": "sgd", "lr": 2.0, "momentum": 0.9}}
    job, _ = went_through(tmp_path, manifest, (2, 5), (80, 10**9), **train)
    summary = json.loads((tmp_path / "summary.json").read_text())
    best = min(lines(job, "history"), key=lambda row: row["val_loss"])
    assert summary["published_step"] == best["step"]
    assert summary["final"]["val_loss"] == best["val_loss"]


def test_the_summary_has_the_legs_and_verify_does_not_call_them_one_training(tmp_path, manifest):
    job, attempts = went_through(tmp_path, manifest, (2, 2, 3), (40, 40, 10**9))
    legs = json.loads((tmp_path / "summary.json").read_text())["legs"]
    assert [(leg["step"], leg["ranks"]) for leg in legs] == [(0, 2), (attempts[-1].start, 3)]
    found = [str(finding) for finding in check_reproducibility(load_finished_run(job.folder))]
    sentence = f"its number of ranks changed (2 from step 0, 3 from step {attempts[-1].start})"
    assert any(sentence in line for line in found)
    assert not any("ok" in line for line in found)


NORMALIZED = """
from torch import nn
def network(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, classes))
"""


def test_a_lone_sample_after_a_change_of_ranks_is_refused_before_the_first_step(tmp_path, small_store):
    (tmp_path / "network.py").write_text(NORMALIZED)
    data = {"validation": 0.2}
    model = {"name": f"{tmp_path / 'network.py'}:network"}

    def resized(ranks):
        # 160 samples: whole batches of 4 and of 5 ranks.
        train = {"batch_size": 2}
        return watched(tmp_path / "run", small_store, {}, ranks, train=train, model=model, data=data)

    assert not train_simulated(resized(4), StopAfter(30))
    taken = 8 * read_progress(tmp_path / "run" / "state")[2]
    assert taken % 10 == 2  # 8 samples are left of a step of 5 ranks: 2, 2, 2, 1, 1
    with pytest.raises(UserError, match=rf"in epoch 1, step {taken // 10 + 1}, on rank [34]: batch norm"):
        train_simulated(resized(5), StopFlag())
    simulate(resized(4))


def planned(folder, manifest, case, **parallel):
    """Return a task with three ranks in the second of three epochs, and six in the third; the file has them in any order."""
    job = task(folder, manifest, 5, case.partition(",")[0], **ELASTIC[case])
    changes = {"parallel": merge_settings({"simulation": {"elastic": {3: 6, 2: 3}}}, parallel)}
    return replace(job, run=Run.model_validate(merge_settings(job.run.settings, changes)))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.exhaustive) if case in MORE else case for case in ELASTIC]
)
def test_simulated_ranks_leave_and_return_as_in_resumes_by_hand(tmp_path, manifest, case):
    whole = simulate(planned(tmp_path / "whole", manifest, case))
    for until, ranks in ((1, 5), (2, 3), (None, 6)):
        resumed = planned(tmp_path / "by hand", manifest, case, ranks=ranks, simulation={"elastic": {}})
        assert train_simulated(replace(resumed, until=until), StopFlag())
    assert lines(whole, "history") == lines(resumed, "history")
    assert whole.paths.model.read_bytes() == resumed.paths.model.read_bytes()
    assert [row["samples"] for row in lines(whole, "history")] == [721, 2 * 721, 3 * 721]


def test_ranks_that_leave_and_return_survive_kills_and_have_one_clock(tmp_path, manifest):
    machine = {"speeds": {1: 1.0}, "jitter": 0.0, "latency": 0.0, "bandwidth": 1e15, "sample_seconds": 1.0}
    whole, killed = (
        planned(tmp_path / name, manifest, "allreduce", simulation=machine) for name in ("whole", "killed")
    )
    # 14 steps of 50 samples, then 21; 24 of 30, then 1; 12 of 60, then 1; the rank with the most samples decides
    simulate(whole)
    assert [row["seconds"] for row in lines(whole, "history")] == [145, 145 + 241, 145 + 241 + 121]
    findings = check_reproducibility(load_finished_run(whole.folder))
    assert not any("number of ranks" in str(finding) for finding in findings)
    assert json.loads(whole.paths.summary.read_text())["restarts"] == 0
    simulate(killed, 60, 90, 40)
    assert whole.paths.model.read_bytes() == killed.paths.model.read_bytes()


@pytest.mark.parametrize("saves", [True, False], ids=["saved", "full disk"])
def test_a_training_that_ends_before_its_ranks_change_is_trained_once(tmp_path, manifest, monkeypatch, saves):
    job = planned(tmp_path, manifest, "allreduce")
    target = {"train": {"target": {"metric": "val_accuracy", "value": 0.01}}}
    job = replace(job, run=Run.model_validate(merge_settings(job.run.settings, target)))
    if not saves:
        monkeypatch.setattr(Checkpointer, "save", lambda *_: None)
    assert train_simulated(job, StopAfter(1000))
    assert [row["epoch"] for row in lines(job, "history")] == [1]
    findings = check_reproducibility(load_finished_run(job.folder))
    assert not any("number of ranks" in str(finding) for finding in findings)


@pytest.mark.parametrize(
    ("name", "elastic", "reason"),
    [
        ("gosgd", {2: 3}, f"{EACH.format('gosgd')}; remove it, or take one of the algorithms allreduce, average"),
        ("average", {9: 3}, "epoch 9 comes after the last one; remove it, or set `train.epochs: 9` or more"),
        ("downpour", {2: 1}, "the run is not possible from epoch 2 on: parallel.ranks: downpour requires at least 2 ranks"),
    ],
)  # fmt: skip
def test_ranks_that_cannot_leave_are_refused_before_the_training(name, elastic, reason):
    simulation = {"ranks": 4, "transport": "simulated", "simulation": {"elastic": elastic}}
    with pytest.raises(UserError, match=re.escape(reason)):
        load_experiment({"algorithm": name, "train": {"epochs": 3}, "parallel": simulation})
