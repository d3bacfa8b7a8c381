"""Killed and failing MPI ranks: all ranks end with one sentence, and the same command resumes the training."""

import json
import subprocess
import time

import pytest
import yaml
from helpers.fault_injection import FaultPlan, InjectedFault, injected_faults
from helpers.repository_copy import environment
from helpers.training_here import share_store, training_here
from helpers.training_process import processes_of, started, training, wait

from nnlo_lib.config.algorithm import ALGORITHMS

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
    plan = FaultPlan(tmp_path, 0, [fault]).variables
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
    settings = yaml.safe_load((tmp_path / "t.yaml").read_text())
    if row.step == "algorithm's":
        del settings["train"]["optimizer"]
    elif algorithm == "scaffold":
        settings["train"]["optimizer"] = {"name": "sgd", "lr": 0.01}
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


METRIC = '''
import os, signal, time
from pathlib import Path

def score(outputs, targets):
    """Once, in the rank that has trained, do not measure."""
    if Path("results/t/allreduce/seed-0/summary.json").exists() and not Path("begun").exists():
        Path("begun").touch()
        {act}
    return 1.0
'''


@pytest.mark.parametrize(
    "act", ["raise RuntimeError", "os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(300)"]
)
def test_what_a_rank_cannot_evaluate_the_launcher_evaluates(tmp_path, act):
    """Rank 0 fails, is killed, or is stopped through a signal to the launcher; the training keeps its results."""
    (tmp_path / "mine.py").write_text(METRIC.format(act=act))
    run = training(tmp_path, metrics=["accuracy", "set:mine.py:score"], train={"epochs": 1})
    if "sleep" in act:
        process = run.start()
        wait("the evaluation begins", lambda: (tmp_path / "begun").exists())
        process.terminate()
        assert "stopped by SIGTERM" in process.communicate(timeout=200)[0]
        assert process.returncode == 75
        assert not (run.job / "evaluation.json").exists()
        wait("no process is left", lambda: not processes_of(tmp_path))
    said = run.finish()
    assert "Traceback" not in said
    assert "resumed" not in said
    report = json.loads((run.job / "evaluation.json").read_text())
    assert (report["score"], report["samples"]) == (1.0, 355)
