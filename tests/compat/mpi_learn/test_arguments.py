"""Each argument of mpi_learn's classes changes the experiment, or is refused, or is named as one without effect."""

import inspect
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import yaml
from helpers.requires import optional

from nnlo_lib.compat.importers.translate import import_experiment
from nnlo_lib.compat.mpi_learn.builders import OPTIONS
from nnlo_lib.compat.mpi_learn.manager import checked_run, keras_objects
from nnlo_lib.compat.mpi_learn.store import make_store
from nnlo_lib.config import Experiment, Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import with_numbers_of_gpus
from nnlo_lib.mpi_learn import Algo, Data, H5Data, ModelBuilder, MPIManager

EASGD = {"mode": "easgd", "elastic_force": 0.45}


def run(algo, ranks=3, processes=1):
    settings = algo.experiment_settings(ranks, 1, False, processes)
    return Run.model_validate({**settings, "parallel": {"ranks": ranks, "processes_per_worker": processes}})


def optimizer(algo, ranks=3):
    return run(algo, ranks).train.optimizer.model_dump(exclude_defaults=True)


def test_downpour_has_the_optimizer_of_the_master():
    made = run(Algo("adam", loss="mse"))
    assert (made.algorithm.name, made.algorithm.sync_every, made.train.optimizer.lr) == ("downpour", 1, 0.001)


def test_elastic_force_is_alpha():
    made = run(Algo(None, worker_optimizer="rmsprop", **EASGD))
    assert (made.algorithm.name, made.algorithm.alpha) == ("easgd", 0.45)
    assert made.train.optimizer.name == "rmsprop"
    assert run(Algo(None, mode="easgd")).algorithm.alpha is None


def test_sgd_of_the_workers_has_the_rate_and_momentum_of_easgd():
    assert optimizer(Algo(None, **EASGD)) == {"lr": 1.0}
    own = optimizer(Algo(None, elastic_lr=0.2, elastic_momentum=0.7, **EASGD))
    assert own == {"lr": 0.2, "momentum": 0.7, "nesterov": True}
    assert optimizer(Algo(None, worker_optimizer_params='{"lr": 0.3}', **EASGD)) == {"lr": 0.3}


def test_arguments_of_gem():
    made = run(Algo("gem", mode="gem", learning_rate=0.02, momentum=0.5, kappa=3.0))
    assert (made.algorithm.momentum, made.algorithm.kappa, made.train.optimizer.lr) == (0.5, 3.0, 0.02)
    scaled = run(Algo("gem", mode="gem", learning_rate=0.5, worker_optimizer="adam"))
    assert (scaled.train.optimizer.name, scaled.train.optimizer.lr) == ("adam", 0.0005)
    usual = run(Algo("gem", mode="gem", sync_every=4))
    assert (usual.algorithm.sync_every, usual.algorithm.momentum, usual.algorithm.kappa) == (4, 0.9, 2.0)


@pytest.mark.parametrize("mode", ["sgd", "easgd", "gem"])
def test_one_rank_without_an_optimizer_of_the_master_has_the_workers(mode):
    assert run(Algo(None, mode=mode), ranks=1).algorithm.name == "allreduce"
    assert optimizer(Algo(None, mode=mode), ranks=1) == {"lr": 1.0}


@pytest.mark.parametrize("mode", ["sgd", "easgd"])
@pytest.mark.parametrize("synchronous", [True, False])
def test_masters_of_the_manager(mode, synchronous):
    settings = Algo("adam", loss="mse", mode=mode).experiment_settings(7, 2, synchronous)
    algorithm = Run.model_validate({**settings, "parallel": {"ranks": 7}}).algorithm
    assert (algorithm.masters, algorithm.synchronous) == (2, synchronous)


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "sgd", "sync_every": 2}, "--optimizer adam --sync-every 2"),
        ({"mode": "easgd", "elastic_force": 0.3, "elastic_lr": 0.2, "elastic_momentum": 0.5},
         "--mode easgd --elastic-force 0.9 --elastic-lr 0.2 --elastic-momentum 0.5"),
        ({"mode": "easgd", "worker_optimizer": "adadelta"}, "--mode easgd --worker-optimizer adadelta --elastic-force 0.9"),
        ({"mode": "gem", "gem_kappa": 3.0}, "--mode gem --gem-kappa 3"),
    ],
)  # fmt: skip
def test_a_script_and_a_command_mean_the_same(options, words, ranks):
    script = run(Algo("adam" if options["mode"] == "sgd" else None, **options), ranks)
    command = f"mpirun -np {ranks} MPIDriver.py mnist_arch.json a.list b.list --loss mse {words}"
    settings = with_numbers_of_gpus(yaml.safe_load(import_experiment([command]).text), 8)
    imported = next(iter(Experiment.model_validate(settings).variants.values()))
    assert imported.train.optimizer == script.train.optimizer
    of_script, of_command = (each.algorithm.model_dump() for each in (script, imported))
    # A driver divides the force by the number of workers.
    of_script.pop("alpha", None), of_command.pop("alpha", None)
    assert of_script == of_command


REFUSED = {
    "unknown mode 'ring'": {"mode": "ring"},
    "divide it by the number of workers": {"mode": "easgd", "elastic_force": 0.9 * 2},
    "elastic_lr has no effect with mode='sgd'": {"elastic_lr": 0.5},
    "elastic_force has no effect with mode='gem'": {"mode": "gem", "elastic_force": 0.5},
    "gem_kappa has no effect with mode='easgd'": {"mode": "easgd", "gem_kappa": 1.0},
    "elastic_lr has no effect on worker_optimizer 'adam', only on 'sgd'": {"worker_optimizer": "adam", "elastic_lr": 0.5, **EASGD},
    "elastic_lr has no effect beside lr in worker_optimizer_params": {
        "elastic_lr": 0.5, "worker_optimizer_params": '{"lr": 0.3}', **EASGD,
    },
    "scales the sum of 4 steps": {"mode": "gem", "sync_every": 4, "learning_rate": 0.01},
    "learning_rate has no effect without an optimizer of the master": {"learning_rate": 0.1, **EASGD},
    "unknown optimizer 'sdg'; did you mean 'sgd'": {"worker_optimizer": "sdg"},
    "not a dictionary in JSON": {"worker_optimizer_params": "lr=1"},
    "'learning_rat' is neither an option of Algo nor an argument of optimizer adam": {"learning_rat": 1.0},
    "'rho' is neither an option of Algo nor an argument of optimizer adam": {"rho": 0.5},
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_would_be_ignored_is_refused(sentence):
    with pytest.raises(UserError, match=f"^Algo: .*{sentence}"):
        Algo("adam", **REFUSED[sentence])


def test_workers_without_an_optimizer_of_the_master_are_refused():
    with pytest.raises(UserError, match="mode 'sgd' on 3 ranks needs the master's optimizer"):
        run(Algo(None))


OTHER = {
    "loss": "mse", "validate_every": 40, "sync_every": 3, "worker_optimizer": "rmsprop",
    "worker_optimizer_params": '{"lr": 0.7}', "elastic_force": 0.3, "elastic_lr": 0.5, "elastic_momentum": 0.5,
    "gem_lr": 0.1, "gem_momentum": 0.1, "gem_kappa": 0.5,
}  # fmt: skip


def outcome(ranks, name, **options):
    """Return all that a training would be made of, or the sentence of the refusal."""
    try:
        algo = Algo(name, **options)
        return algo.loss, algo.experiment_settings(ranks, 1, False), list(algo.remarks(ranks))
    except UserError as error:
        return str(error)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("mode", ["sgd", "easgd", "gem"])
def test_no_option_of_algo_is_ignored(mode, ranks):
    assert {*OTHER, "mode"} == set(OPTIONS)
    name = "adam" if mode == "sgd" else None
    before = outcome(ranks, name, mode=mode)
    # On one rank there is no master: the remark names the mode and sync_every, and the force is the mode's.
    free = {"elastic_force", "gem_momentum", "gem_kappa", "sync_every"} if ranks == 1 else set()
    same = {key for key, value in OTHER.items() if outcome(ranks, name, mode=mode, **{key: value}) == before}
    assert same <= free
    assert outcome(ranks, "rmsprop", mode=mode) != before


# Constructing a manager on rank 0 needs no more of a communicator.
THREE_RANKS = SimpleNamespace(Get_size=lambda: 3, Get_rank=lambda: 0)


def arguments(**options):
    manager = MPIManager(THREE_RANKS, Data(), Algo("adam"), ModelBuilder(), 1, **options)
    return manager._arguments_as_settings(), manager._folder


CHANGED = {
    "num_masters": 2, "num_processes": 2, "synchronous": True, "early_stopping": "val_loss,~<,4",
    "target_metric": "val_acc,>,0.9", "checkpoint": "cp", "folder": "results/mine",
}  # fmt: skip
# Used by the training itself: tests/compat/mpi_learn/test_mpi_learn.py.
IN_TRAINING = {
    "self", "comm", "data", "algo", "model_builder", "num_epochs", "train_list", "val_list", "callbacks", "custom_objects",
    "seed", "settings",
}  # fmt: skip
WITH_FOLDER = {"monitor": True, "checkpoint_interval": 3}
HARMLESS = {"verbose", "thread_validation"}


def test_no_argument_of_the_manager_is_ignored():
    assert {*CHANGED, *WITH_FOLDER, *HARMLESS, *IN_TRAINING} == set(
        inspect.signature(MPIManager.__init__).parameters
    )
    for key, value in CHANGED.items():
        assert arguments(**{key: value}) != arguments(), key
    for key, value in WITH_FOLDER.items():
        assert arguments(checkpoint="cp", **{key: value}) != arguments(checkpoint="cp"), key
    for key in HARMLESS:
        assert f"{key}: accepted without effect" in str(MPIManager.__doc__)


def test_texts_of_the_manager_are_keys_of_an_experiment():
    texts = {"early_stopping": "val_loss,~<,4", "target_metric": "val_acc,>,0.9", "checkpoint": "cp"}
    settings, _ = arguments(num_processes=2, **texts)
    made = Run.model_validate(settings | {"parallel": {"ranks": 3, "processes_per_worker": 2}})
    train = made.train
    assert (train.early_stopping.patience, train.target.value, made.checkpoint.epochs) == (4, 0.9, 5)
    with pytest.raises(UserError, match="MPIManager: monitor: the measurements are files of the results"):
        arguments(monitor=True)
    settings, _ = arguments(early_stopping="val_loss")
    with pytest.raises(UserError, match=r"^MPIManager: train.early_stopping: cannot parse 'val_loss'"):
        checked_run(settings | {"parallel": {"ranks": 3}})


def test_keras_finds_custom_objects_while_the_model_is_built():
    optional("keras")
    import keras

    class Doubled(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    saved = {"class_name": "Doubled", "config": {}, "module": None, "registered_name": "Doubled"}
    with keras_objects({"Doubled": Doubled}):
        assert isinstance(keras.layers.deserialize(saved), Doubled)
    with keras_objects({}), pytest.raises(TypeError, match="Doubled"):
        keras.layers.deserialize(saved)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name in ("features", "x"):
            file[name] = np.zeros((30, 4), np.float32)
        for name in ("labels", "y"):
            file[name] = np.arange(30) % 3
        file["group/b"] = np.zeros((20, 1), np.float32)
    return str(path)


def test_no_argument_of_h5data_is_ignored(file, tmp_path):
    names = set(inspect.signature(H5Data.__init__).parameters) - {"self"}
    assert names == {"batch_size", "features_name", "labels_name", "cache", "preloading"}
    data = H5Data(5, features_name="x", labels_name="y", cache="/scratch", preloading=2)
    block = make_store(data, [file], [], False, tmp_path / "store")
    assert (block.stage_to, block.reader.features, block.reader.labels) == ("/scratch", "x", "y")
    assert "preloading: accepted without effect" in str(H5Data.__doc__)
    assert make_store(H5Data(cache=""), [file], [], False, tmp_path / "other").stage_to is None


def test_samples_are_counted(file):
    class Mine(H5Data):
        def load_data(self, in_file_name):
            return np.zeros((7, 4)), np.zeros(7)

    class Generated(Data):
        def generate_data(self):
            yield [np.zeros((3, 2)), np.zeros((3, 1))], np.zeros(3)
            yield [np.zeros((2, 2)), np.zeros((2, 1))], [np.zeros(2)]

    for data, count in ((H5Data(), 60), (H5Data(labels_name="group"), 40), (Mine(), 14), (Generated(), 5)):
        data.set_file_names([file, file])
        assert data.count_data() == count
