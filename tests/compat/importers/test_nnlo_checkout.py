"""Commands of NNLO's users, in a checkout of its layout: the examples import models, files and adaptors."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.nnlo_checkout import write_checkout
from helpers.nnlo_command import nnlo
from helpers.requires import absent

from nnlo_lib.compat.importers.translate import translate
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.workflow.single_run import prepare_task

TRAIN = "mpirun -np 3 ./TrainingDriver.py --model examples/{} --loss categorical_crossentropy --epochs 1 --batch 5"
SEARCH = "mpirun -np 7 ./OptimizationDriver.py --model examples/{} --block-size 3 --batch 5"
SHORT = ("train.steps_per_epoch=1", "parallel.transport=simulated")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a folder with the layout of NNLO's checkout."""
    if missing := [name for name in ("keras", "skopt") if find_spec(name) is None]:
        absent(f"no {missing[0]}")
    return write_checkout(tmp_path_factory.mktemp("NNLO"))


@pytest.fixture(autouse=True)
def in_checkout(checkout, monkeypatch):
    """Work in the checkout, whose folder only the command itself puts on the path."""
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(checkout))])
    yield
    # Other tests of this process may have a package `models` of their own.
    for name in [each for each in sys.modules if each.partition(".")[0] in ("models", "examples")]:
        del sys.modules[name]


@pytest.mark.long
@pytest.mark.parametrize(
    ("example", "shape", "classes"),
    [
        ("example_mnist.py", (28, 28, 1), 10),
        ("example_mnist_torch.py", (28, 28, 1), 10),
        ("example_hls4mlgru.py", (6, 9), 5),
        ("example_jedi_torch.py", (6, 9), 5),
    ],
)
def test_an_example_is_imported_checked_and_trained(example, shape, classes):
    Path("x.yaml").write_text(translate([TRAIN.format(example)]))
    done = nnlo("check", "x.yaml", folder=Path.cwd())
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
    experiment = load_experiment("x.yaml", SHORT)
    task = prepare_task(experiment, next(iter(experiment.variants)), 0, None)
    manifest = DataManifest.load(task.manifest)
    assert (manifest.inputs[0].shape, manifest.classes) == (shape, classes)
    assert train_simulated(task, StopFlag())
    assert task.paths.history.exists()


@pytest.mark.parametrize(
    ("example", "searched"),
    [("example_mnist.py", {"nb_filters", "dense", "dropout"}), ("example_mnist_torch.py", {"dense"})],
)
def test_ranges_of_an_imported_function_are_searched(example, searched):
    Path("x.yaml").write_text(translate([SEARCH.format(example)]))
    assert load_experiment("x.yaml").search.space.keys() == {f"model.args.{name}" for name in searched}
    assert nnlo("check", "x.yaml", folder=Path.cwd()).returncode == 0


def test_an_edit_of_an_imported_module_is_another_store():
    Path("x.yaml").write_text(translate([TRAIN.format("example_mnist.py")]))
    experiment = load_experiment("x.yaml")
    before = prepare_task(experiment, next(iter(experiment.variants)), 0, None).manifest
    with open("models/Models.py", "a") as file:
        file.write("# edited\n")
    assert prepare_task(experiment, next(iter(experiment.variants)), 0, None).manifest != before


def test_a_module_that_cannot_be_loaded_is_told():
    Path("examples/broken.py").write_text("import tensorflow_of_2017\n")
    text = translate([TRAIN.format("broken.py")])
    assert "examples/broken.py cannot be loaded: examples/broken.py:1" in " ".join(
        text.replace("#", "").split()
    )
