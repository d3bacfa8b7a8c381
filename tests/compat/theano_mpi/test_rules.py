"""Theano-MPI's rules as its README uses them: init and wait, in a script of the user."""

import csv
import inspect
import shutil
import subprocess
import sys

import numpy as np
import pytest
from helpers import iteration_models
from helpers.repository_copy import environment
from safetensors.numpy import load_file

from nnlo_lib.compat.theano_mpi import BSP, EASGD, GOSGD
from nnlo_lib.compat.theano_mpi import rule as rule_module
from nnlo_lib.compat.theano_mpi.rule import RuleSettings, zoo_experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.attempts import read_attempts

SCRIPT = """
from nnlo_lib.compat.theano_mpi import BSP
from nnlo_lib.core.errors import UserError

BSP.sync_type = "avg"
rule = BSP()
rule.init(devices=["cpu", "cpu"], modelfile="models.modelfile", modelclass="LinearModel")
print(rule.wait())
failing = BSP()
failing.init(devices=["cpu", "cpu"], modelfile="models/modelfile.py", modelclass="FailingModel")
try:
    failing.wait()
except UserError as error:
    print(error)
"""


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_a_script_trains_and_hears_of_failures(tmp_path):
    (tmp_path / "models").mkdir()
    shutil.copy(inspect.getsourcefile(iteration_models), tmp_path / "models/modelfile.py")
    (tmp_path / "launch_session.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "launch_session.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "results/LinearModel-bsp"
    assert "no batches in /data/made-up" in said[-1]
    assert "Traceback" not in done.stderr
    results = tmp_path / "results/LinearModel-bsp"
    with (results / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["iterations"] for row in rows] == ["6", "12"]
    assert float(rows[1]["train_cost"]) < float(rows[0]["train_cost"])
    weights = load_file(results / "params.safetensors")
    assert np.abs(weights["0"] - 1).max() < 0.5
    attempts = [
        read_attempts(tmp_path / f"results/{name}-bsp/state") for name in ("LinearModel", "FailingModel")
    ]
    assert [each.reason for (each,) in attempts] == ["finished", "bad input"]


ZOO = ("theanompi.models.cifar10", "Cifar10_model")


def zoo(rule, devices=("cpu", "cpu", "cpu"), settings=None, **attributes):
    return zoo_experiment(RuleSettings(rule, **attributes), devices, *ZOO, settings or {})


def test_models_of_theano_mpi_become_experiments():
    momenta, average = zoo("BSP"), zoo("BSP", sync_type="avg", exch_strategy="asa16")
    assert momenta.model.name == "theanompi_cifar10"
    assert (momenta.parallel.ranks, momenta.parallel.gpus_per_rank) == (3, 0)
    assert (momenta.algorithm.name, momenta.compression.name) == ("allreduce", "none")
    rule = average.algorithm
    assert (rule.name, rule.sync_every, average.compression.name) == ("average", 1, "fp16")
    elastic, gossip = zoo("EASGD", tau=3, alpha=0.2), zoo("GOSGD", p=0.1)
    assert (elastic.algorithm.sync_every, elastic.algorithm.alpha) == (3, 0.2)
    assert gossip.algorithm.probability == 0.1
    on_gpus = zoo("BSP", ["cuda0", "cuda1"], {"train": {"epochs": 4}})
    parallel = on_gpus.parallel
    assert (parallel.gpus_per_rank, parallel.gpu_exchange, on_gpus.train.epochs) == (1, "nccl", 4)


def with_attribute(kind, name, value):
    """Return a rule of a class with another attribute, as scripts set it."""
    rule = kind()
    setattr(rule, name, value)
    return rule


MODEL = {"modelfile": "models.modelfile", "modelclass": "Mine"}


@pytest.mark.parametrize(
    ("rule", "arguments", "sentence"),
    [
        (BSP(), {"devices": ["cuda0", "gpu1"]}, "devices: invalid value ['cuda0', 'gpu1']; write a list"),
        (BSP(), {"devices": "cuda0"}, "devices: invalid value 'cuda0'"),
        (BSP(), {"devices": ["cpu", "cuda0"]}, "devices: ['cpu', 'cuda0'] mixes cpu and cuda; use one kind"),
        (EASGD(), {"devices": ["cuda0"]}, "devices: EASGD requires at least 2, got 1"),
        (BSP(), {}, "modelfile: models/modelfile.py does not exist"),
        (BSP(), {"settings": {"train": {"epochs": 1}}}, "settings: models.modelfile:Mine sets its own constants"),
        (with_attribute(BSP, "sync_type", "swap"), {}, "sync_type: `swap` exchanges the parameters of random pairs"),
        (with_attribute(BSP, "sync_type", "cdc"), {}, "sync_type: unknown value 'cdc'; did you mean 'cdd'?"),
        (with_attribute(BSP, "exch_strategy", "nccl"), {}, "exch_strategy: unknown value 'nccl'"),
        (with_attribute(BSP, "sync_typ", "avg"), {}, "BSP: no setting sync_typ; did you mean 'sync_type'?"),
        (with_attribute(GOSGD, "tau", 3), {}, "GOSGD: no setting tau"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path, monkeypatch, rule, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        rule.init(**{"devices": ["cpu", "cpu"], **MODEL, **arguments})
    assert sentence in str(error.value)


def test_a_stopped_training_cannot_resume(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(inspect.getsourcefile(iteration_models), "models.py")
    stopped = AttemptOutcome("time limit", "stopped without saving; run the same command again to resume")
    monkeypatch.setattr(rule_module, "train_task", lambda task, options: stopped)
    rule = BSP()
    with pytest.raises(UserError, match=r"nothing was started; call rule.init first"):
        rule.wait()
    rule.init(["cpu"], "models", "LinearModel")
    message = r"stopped \(time limit\); a class with its own steps has no checkpoint"
    with pytest.raises(UserError, match=message):
        rule.wait()


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_model_of_theano_mpi_is_trained_by_nnlo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {
        "model": {"name": "perceptron"}, "train": {"epochs": 1, "steps_per_epoch": 2, "schedule": {"name": "constant"}},
        "data": {"dataset": "digits", "crop": None, "augment": {"flip": 0}},
    }  # fmt: skip
    rule = BSP()
    rule.init(["cpu"], *ZOO, settings=settings)
    folder = rule.wait()
    assert (folder / "summary.json").is_file()
    assert (folder / "evaluation.json").is_file()
    settings["train"]["optimizer"] = {"lr": 1e30}
    rule.init(["cpu"], *ZOO, settings=settings)
    with pytest.raises(UserError, match=r"(?i)nan|infinite|diverged"):
        rule.wait()
