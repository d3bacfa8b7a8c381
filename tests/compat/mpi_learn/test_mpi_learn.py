"""mpi_learn's Python interface, customized as in its README, on real ranks."""

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.repository_copy import environment
from helpers.requires import optional
from sklearn.datasets import load_digits

pytestmark = pytest.mark.mpi
SCRIPT = """
import json, sys
import numpy as np
from mpi4py import MPI
from torch import nn
from nnlo_lib.mpi_learn import Algo, Data, H5Data, ModelBuilder, ModelFromJson, MPIManager

class Mine(ModelBuilder):
    def build_model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

class Halves(Data):
    '''Two inputs, as no file has them.'''
    def generate_data(self):
        for name in self.file_names:
            with np.load(name) as file:
                for start in range(0, len(file["x"]), 50):
                    x = file["x"][start : start + 50].reshape(-1, 64)
                    yield [x[:, :32], x[:, 32:]], file["y"][start : start + 50]

class TwoInputs(ModelBuilder):
    def build_model(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.upper, self.lower = nn.Linear(32, 10), nn.Linear(32, 10)
            def forward(self, upper, lower):
                return self.upper(upper) + self.lower(lower)
        return Net()

class Watching:
    seen = []
    def on_epoch_end(self, epoch, logs):
        self.seen.append([epoch, sorted(logs)])

def report(manager, histories):
    if MPI.COMM_WORLD.Get_rank() == 0:
        json.dump({"histories": histories, "seen": Watching.seen}, open("report.json", "w"))

comm = MPI.COMM_WORLD
"""
GENERATED = """
algo = Algo("adam", loss="categorical_crossentropy", learning_rate=0.01)
manager = MPIManager(comm=comm, data=Halves(), algo=algo, model_builder=TwoInputs(), num_epochs=8,
                     train_list=["a.npz", "b.npz"], val_list=["c.npz"], callbacks=[Watching()], synchronous=True)
if comm.Get_rank() == 0:
    report(manager, manager.process.train())
"""


@pytest.fixture
def files(tmp_path):
    digits = load_digits()
    x, y = (digits.images / 16).astype(np.float32), np.eye(10, dtype=np.float32)[digits.target]
    for name, rows in (("a", slice(0, 700)), ("b", slice(700, 1400)), ("c", slice(1400, None))):
        np.savez(tmp_path / f"{name}.npz", x=x[rows], y=y[rows])
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["features"], file["labels"] = x[rows], y[rows]
    return tmp_path


def run(folder, script, ranks=3):
    (folder / "script.py").write_text(SCRIPT + script)
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    return subprocess.run(
        [mpiexec, "-n", str(ranks), sys.executable, "script.py"], cwd=folder, env=environment(), timeout=200,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip


@pytest.mark.exhaustive
def test_the_readme_s_way(files):
    done = run(files, GENERATED)
    assert done.returncode == 0, done.stdout
    report = json.loads((files / "report.json").read_text())
    history = report["histories"]["0:0:-"]
    assert len(history["val_acc"]) == 8
    assert history["val_acc"][-1] > 0.8
    assert history["val_loss"][-1] < history["val_loss"][0]
    assert report["seen"][-1] == [7, ["acc", "accuracy", "loss", "val_acc", "val_accuracy", "val_loss"]]
    assert not list(files.glob(".mpi_learn*"))


@pytest.mark.exhaustive
def test_a_keras_callback_ends_it(files):
    optional("keras")
    script = """
import keras

class FromKeras(ModelBuilder):
    def build_model(self):
        layers = [keras.layers.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
        return keras.Sequential(layers)

stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, min_delta=100.0)
algo = Algo("sgd", loss="categorical_crossentropy", learning_rate=0.05)
manager = MPIManager(comm, H5Data(batch_size=20), algo, FromKeras(), 30, ["a.h5"], ["c.h5"], callbacks=[stop])
report(manager, manager.train())
"""
    done = run(files, script)
    assert done.returncode == 0, done.stdout
    history = json.loads((files / "report.json").read_text())["histories"]["0:0:-"]
    assert len(history["val_loss"]) == 2


@pytest.mark.exhaustive
def test_a_mistake_ends_all_ranks_with_a_sentence(files):
    done = run(
        files, 'MPIManager(comm, H5Data(), Algo("adam", loss="mse"), Mine(), 1, ["lost.h5"], []).train()'
    )
    assert done.returncode == 2
    assert "lost.h5" in done.stdout
    assert "Traceback" not in done.stdout
    assert not list(files.glob(".mpi_learn*")), "nothing is left"


DRIVER = """
import argparse
from time import time

def read_list(name):
    with open(name) as file:
        return [line.strip() for line in file]

parser = argparse.ArgumentParser()
for option in ("--monitor", "--verbose", "--thread_validation", "--synchronous"):
    parser.add_argument(option, action="store_true")
parser.add_argument("--early-stopping", default=None)
parser.add_argument("--target-metric", default=None)
args = parser.parse_args(["--target-metric", "val_acc,>,0.3"])
train_list, val_list = read_list("train.list"), read_list("val.list")
data = H5Data(batch_size=20, cache="", preloading=0, features_name="features", labels_name="labels")
data.set_file_names(train_list)
validate_every = int(data.count_data() / 20)
assert validate_every == 70, validate_every
workers = comm.Get_size() - 1
algo = Algo(None, loss="categorical_crossentropy", validate_every=validate_every, mode="easgd", sync_every=1,
            worker_optimizer="sgd", elastic_force=0.9 / workers, elastic_lr=0.1, elastic_momentum=0.5)
manager = MPIManager(comm=comm, data=data, algo=algo, model_builder=Mine(comm), num_epochs=9, train_list=train_list,
                     val_list=val_list, num_masters=1, num_processes=1, synchronous=args.synchronous,
                     verbose=args.verbose, monitor=args.monitor, early_stopping=args.early_stopping,
                     target_metric=args.target_metric, thread_validation=args.thread_validation,
                     checkpoint="cp", checkpoint_interval=1, custom_objects={})
if comm.Get_rank() == 0:
    started = time()
    histories = manager.process.train()
    delta = time() - started
    manager.free_comms()
    manager.process.record_details("history.json", meta={"args": vars(args)})
"""


@pytest.mark.real
def test_a_script_like_mpidriver_runs_to_its_end(files):
    for name, members in (("train.list", ["a.h5", "b.h5"]), ("val.list", ["c.h5"])):
        (files / name).write_text("".join(f"{files / member}\n" for member in members))
    done = run(files, DRIVER)
    assert done.returncode == 0, done.stdout
    details = json.loads((files / "history.json").read_text())
    accuracies = details["history"]["0:0:-"]["val_acc"]
    assert accuracies[-1] > 0.3
    assert len(accuracies) < 9, "the target metric ended the training"
    assert details["args"]["target_metric"] == "val_acc,>,0.3"
    assert list((files / "cp" / "state" / "checkpoints").glob("0*")), (
        "checkpoints are in the folder of their name"
    )
