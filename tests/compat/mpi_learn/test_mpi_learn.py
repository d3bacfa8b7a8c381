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

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.mpi_learn import Algo

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
CASES = {
    "files, easgd": """
algo = Algo("adam", loss="categorical_crossentropy", mode="easgd", worker_optimizer="adam",
            worker_optimizer_params='{"lr": 0.01}', elastic_force=0.9, sync_every=2)
manager = MPIManager(comm, H5Data(batch_size=20), algo, Mine(comm), 8, ["a.h5", "b.h5"], ["c.h5"], callbacks=[Watching()])
report(manager, manager.train())
""",
    "generated, root starts": """
algo = Algo("adam", loss="categorical_crossentropy", learning_rate=0.01)
manager = MPIManager(comm=comm, data=Halves(), algo=algo, model_builder=TwoInputs(), num_epochs=8,
                     train_list=["a.npz", "b.npz"], val_list=["c.npz"], callbacks=[Watching()], synchronous=True)
if comm.Get_rank() == 0:
    report(manager, manager.process.train())
""",
}


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


@pytest.mark.slow
@pytest.mark.parametrize("script", CASES.values(), ids=CASES)
def test_the_readme_s_way(files, script):
    done = run(files, script)
    assert done.returncode == 0, done.stdout
    report = json.loads((files / "report.json").read_text())
    history = report["histories"]["0:0:-"]
    assert len(history["val_acc"]) == 8
    assert history["val_acc"][-1] > 0.8
    assert history["val_loss"][-1] < history["val_loss"][0]
    assert report["seen"][-1] == [7, ["acc", "accuracy", "loss", "val_acc", "val_accuracy", "val_loss"]]
    assert not list(files.glob(".mpi_learn*"))


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_mistake_ends_all_ranks_with_a_sentence(files):
    done = run(
        files, 'MPIManager(comm, H5Data(), Algo("adam", loss="mse"), Mine(), 1, ["lost.h5"], []).train()'
    )
    assert done.returncode != 0
    assert "lost.h5" in done.stdout
    assert "Traceback" not in done.stdout


SETTINGS = {
    "downpour": (
        {},
        {"algorithm": {"name": "downpour", "sync_every": 1}, "optimizer": {"name": "adam", "lr": 0.001}},
    ),
    "easgd": (
        {"mode": "easgd", "worker_optimizer": "rmsprop", "elastic_force": 0.5},
        {"algorithm": {"name": "easgd", "elastic_force": 0.5}, "optimizer": {"name": "rmsprop"}},
    ),
    "gem": ({"mode": "gem", "sync_every": 4}, {"algorithm": {"name": "gem", "sync_every": 4, "kappa": 2.0}}),
}


@pytest.mark.parametrize(("options", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_what_algo_says(options, expected):
    settings = Algo("adam", loss="categorical_crossentropy", **options).experiment_settings(3, 1, False)
    made = Run.model_validate({**settings, "parallel": {"ranks": 3}}).model_dump()
    assert made["algorithm"].items() >= expected["algorithm"].items()
    assert made["train"]["optimizer"].items() >= expected.get("optimizer", {}).items()


@pytest.mark.parametrize("options", [{"mode": "ring"}, {"elastic_lr": 0.5}])
def test_what_algo_does_not_know(options):
    with pytest.raises(UserError, match="Algo: "):
        Algo("adam", **options)


def test_an_argument_of_no_optimizer():
    with pytest.raises(
        UserError, match="'learning_rat' is neither an option of Algo nor an argument of optimizer adam"
    ):
        Algo("adam", learning_rat=1.0).experiment_settings(1, 1, False)
