"""Killed and failing MPI ranks: all ranks end with one sentence, and the same command resumes the training."""

import json
import random
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import yaml
from helpers import fork_server
from helpers.algorithm_trainings import ASYNCHRONOUS, SYNCHRONOUS, rows, task
from helpers.repository_copy import environment
from helpers.training_here import share_store, training_here
from helpers.training_process import processes_of, started, training, wait

from nnlo_lib.config import Run, merge_settings
from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.reliability.chaos import run_faulty_attempt
from nnlo_lib.reliability.chaos_report import find_differences
from nnlo_lib.train.fault_injection import (
    FAULTS_ENV_VAR,
    FaultPlan,
    InjectedFault,
    injected_faults,
    reached_failpoints,
)

pytestmark = [pytest.mark.mpi, pytest.mark.processes]
OUTPUTS = ("model.safetensors", "history.csv", "summary.json", "trace.json", "log.txt", "evaluation.json")
VICTIMS = [
    pytest.param(*case, marks=pytest.mark.real if number < 2 else pytest.mark.exhaustive)
    for number, case in enumerate(
        [("allreduce", 2, 1), ("downpour", 3, 1), ("allreduce", 2, 0), ("downpour", 3, 0), ("downpour", 3, 2)]
    )
]


def ledger_of(state):
    return [json.loads(line) for line in (state / "ledger.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("algorithm", "ranks", "victim"), VICTIMS)
def test_a_killed_rank_ends_all_and_the_same_command_resumes(tmp_path, algorithm, ranks, victim):
    settings = {"train": {"epochs": 3}}
    whole = training_here(tmp_path / "whole", algorithm, ranks, **settings)
    run = started(tmp_path / "real", algorithm, ranks, **settings)
    share_store(run.folder)
    fault = InjectedFault(0, "checkpoint.written", victim, 2, "kill")
    plan = {FAULTS_ENV_VAR: FaultPlan(tmp_path, 0, [fault]).json_text}
    done = subprocess.run(
        run.command, cwd=run.folder, env=environment() | plan, timeout=800, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    said = done.stdout
    assert done.returncode == 1, said
    assert injected_faults(tmp_path) == [0]
    assert f"rank {victim} (process {run.pid(victim)} on " in said.splitlines()[-1]
    assert "Traceback" not in said
    wait("no process is left", lambda: not processes_of(run.folder))
    assert not [name for name in OUTPUTS if (run.job / name).exists()]
    assert "resumed at epoch 1" in run.finish()
    assert [(row["missed"], row["repeated"]) for row in ledger_of(run.job / "state")] == [(0, 0)] * 3
    if algorithm == "allreduce":
        whole.finish()
        assert run.weights == whole.weights
        assert run.history == whole.history


FAILING = """
import os
from torch import nn

class Failing(nn.Linear):
    steps = 0

    def forward(self, images):
        self.steps += 1
        if os.environ.get("PMI_RANK") == "2" and self.steps == 4:
            raise ArithmeticError("the third step of rank 2")
        return super().forward(images.flatten(1))

def failing(shape, classes):
    return Failing(shape[0] * shape[1] * shape[2], classes)
"""
GRAPHS = {"d2": {"name": "cycle", "weights": "lazy_metropolis"}}
LIMIT_S = 300  # half of the time after which ranks give up waiting for a peer


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=pytest.mark.real if name == "gosgd" else pytest.mark.exhaustive)
        for name in ALGORITHMS
    ],
)
def test_an_exception_in_a_rank_ends_all(tmp_path, algorithm):
    """Settings that the algorithm does not use are left out."""
    (tmp_path / "failing.py").write_text(FAILING)
    row = ALGORITHMS[algorithm]
    graph = {"topology": GRAPHS.get(algorithm, {"name": "cycle"})} if row.graph_properties else {}
    run = training(tmp_path, algorithm, ranks=4, model={"name": "failing.py:failing"}, **graph)
    if row.step == "algorithm's":
        settings = yaml.safe_load((tmp_path / "t.yaml").read_text())
        del settings["train"]["optimizer"]
        (tmp_path / "t.yaml").write_text(yaml.safe_dump(settings))
    said = run.finish(expect=2)
    report = json.loads((run.job / "state/failures/2").read_text())
    assert time.time() - report["time"] < LIMIT_S
    sentence = "rank 2 failed: failing.py:11 in forward: ArithmeticError: the third step of rank 2; samples are 1 x 8 x 8"
    assert said.count(sentence) == 1
    assert "Traceback" not in said
    assert "Traceback" in report["traceback"]
    assert report["reason"] == "user code"
    wait("no process is left", lambda: not processes_of(tmp_path))


# Every algorithm under one fault after another

PATIENCE = 400  # time limit of an attempt in seconds
EPOCHS = 20  # enough that no training finishes before a signal has reached all ranks
SHARE = 10  # a fault occurs within this part (1 / SHARE) of a run
STATUS = {"kill": {1}, "truncate": {1}, "bitflip": {1}, "term": {75, 0}, "term_all": {75, 0}}
# number of ranks (default 3): average has groups of two, adpsgd needs a bipartite cycle
RANKS = {"average": 4, "adpsgd": 4}
CASES = {case.partition(",")[0]: (case, settings) for case, settings in SYNCHRONOUS.items()}
CASES |= {f"asynchronous {case}": (case, settings) for case, settings in ASYNCHRONOUS.items()}


def job(folder, manifest, case, settings):
    """Return the task of a case with MPI ranks, which saves every 2 steps."""
    parallel = {"ranks": RANKS.get(case.partition(",")[0], 3), "transport": "mpi"}
    made = task(folder, manifest, case, merge_settings({"parallel": parallel}, settings))
    longer = {"train": {"epochs": EPOCHS}, "checkpoint": {"every": "2 steps"}}
    return replace(made, run=Run.model_validate(merge_settings(made.run.settings, longer)))


def faults(found, seed):
    """Return a fault of each kind.

    Args:
        found: for each rank, how often it reaches each failpoint.
        seed: seed of the random choices.
    """
    draw = random.Random(seed)

    def fault(action, where, rank):
        place = draw.choice(sorted(name for name in found[rank] if name.startswith(where)))
        return place, rank, 1 + draw.randrange(-(-found[rank][place] // SHARE)), action

    anyone = [draw.randrange(len(found)) for _ in range(4)]
    drawn = [
        fault("kill", "exchange.", anyone[0]), fault("kill", "checkpoint.written", anyone[1]),
        fault("term", "exchange.", anyone[2]), fault(draw.choice(["truncate", "bitflip"]), "checkpoint.published", 0),
        fault("term_all", "exchange.", anyone[3]),
    ]  # fmt: skip
    return [InjectedFault(number, *each) for number, each in enumerate(drawn)]


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_every_algorithm_comes_back_after_one_fault_after_another(tmp_path, monkeypatch, manifest, name):
    """The ranks are forked from a process with all imports done; imports take most of the time of an attempt."""
    monkeypatch.setattr(sys, "executable", fork_server.python())
    whole, parts = (job(tmp_path / folder, manifest, *CASES[name]) for folder in ("whole", "parts"))

    def attempt(training, *injected):
        status = run_faulty_attempt(training, "mpiexec", list(injected), PATIENCE)
        return (
            status,
            f"status {status} under {injected}: {(training.folder / 'said.txt').read_text()[-2000:]}",
        )

    status, said = attempt(whole)
    assert status == 0, said
    found = [reached_failpoints(whole.folder, rank) for rank in range(whole.run.parallel.ranks)]
    for fault in faults(found, name):
        status, said = attempt(parts, fault)
        assert fault.number in injected_faults(parts.folder), said
        assert status in STATUS[fault.action], said
    status, said = attempt(parts)
    assert status == 0, said
    if name.startswith("asynchronous"):
        assert rows(parts)[-1]["invariant"] < 1e-5
    else:
        assert find_differences(parts.folder, whole.folder) == []
    assert [(row["samples"], row["missed"], row["repeated"]) for row in ledger_of(parts.state)] == [
        (721, 0, 0)
    ] * EPOCHS
