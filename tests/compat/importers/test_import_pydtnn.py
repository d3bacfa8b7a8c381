"""Import of the command in PyDTNN's README, and of its options by their meaning in PyDTNN's code."""

import pytest

from nnlo_lib.config.observe import ProfileConfig
from nnlo_lib.config.schedule import PlateauScheduleConfig, StepScheduleConfig, WarmUpConfig
from nnlo_lib.config.stopping import EarlyStoppingConfig, TargetMetricConfig

README = r"""
$ export OMP_NUM_THREADS=1
$ mpirun -np 4 \
   python3 -u benchmarks_CNN.py \
         --model=simplecnn \
         --dataset=mnist \
         --dataset_train_path=../datasets/mnist \
         --dataset_test_path=../datasets/mnist \
         --test_as_validation=False \
         --batch_size=64 \
         --validation_split=0.2 \
         --num_epochs=50 \
         --evaluate=True \
         --optimizer=Adam \
         --learning_rate=0.1 \
         --loss_func=categorical_accuracy,categorical_cross_entropy \
         --lr_schedulers=early_stopping,reduce_lr_on_plateau \
         --early_stopping_metric=val_categorical_cross_entropy \
         --early_stopping_patience=10 \
         --reduce_lr_on_plateau_metric=val_categorical_cross_entropy \
         --reduce_lr_on_plateau_factor=0.1 \
         --reduce_lr_on_plateau_patience=5 \
         --reduce_lr_on_plateau_min_lr=0 \
         --parallel=data \
         --dtype=float32
"""


def test_readme(imported):
    experiment, text = imported(README)
    assert (experiment.model.name, experiment.data.dataset) == ("simplecnn", "mnist")
    assert experiment.data.source == "../datasets/mnist"
    assert experiment.data.validation == 0.2
    assert (experiment.train.batch_size, experiment.train.epochs, experiment.parallel.ranks) == (64, 50, 4)
    assert (experiment.algorithm.name, experiment.loss) == ("allreduce", "cross_entropy")
    rule = experiment.train.optimizer
    assert (rule.name, rule.beta1, rule.beta2, rule.epsilon) == ("adam", 0.99, 0.999, 1e-7)
    assert rule.lr == 0.000390625  # effective_learning_rate in the README's log
    assert experiment.train.early_stopping == EarlyStoppingConfig(metric="val_loss", patience=10)
    assert experiment.train.restore_best == "val_loss"
    assert experiment.train.schedule == PlateauScheduleConfig(metric="val_loss", factor=0.1, patience=5)
    assert experiment.train.evaluate_before
    assert experiment.train.precision == "float32"
    assert "--dtype float32" in text or "--dtype=float32" in text


@pytest.mark.parametrize(("name", "rule"), [("adam", "adam"), ("rmsprop", "rmsprop"), ("nadam", "nadam")])
def test_epsilon_of_adam_and_rmsprop_is_inside_the_root(imported, name, rule):
    experiment, text = imported(f"pydtnn_benchmark --optimizer={name} --epsilon=1e-5")
    found = experiment.train.optimizer
    assert (found.name, found.epsilon) == (rule, 1e-5)
    assert getattr(found, "epsilon_inside_root", False) == (name != "nadam")
    assert ("inside the root" in text) == (name == "nadam")


RUN = "mpirun -np 4 pydtnn_benchmark --parallel=data --lr_schedulers=early_stopping"


def test_the_newer_launcher_scales_the_rate_of_sgd_with_ranks(imported):
    experiment, _ = imported(f"{RUN} --learning_rate=0.05 --nesterov=True")
    assert experiment.train.optimizer.model_dump() == {
        "name": "sgd", "lr": 0.2, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0, "decoupled": False,
    }  # fmt: skip
    assert imported(f"{RUN} --learning_rate_scaling=no")[0].train.optimizer.lr == 0.01
    assert imported(f"{RUN} --optimizer=rmsprop")[0].train.optimizer.lr == 0.01


def test_data(imported):
    experiment, _ = imported(
        f"{RUN} --dataset=cifar10 --test_as_validation=True --flip_images=True --crop_images=1 --crop_images_size=20 "
        "--steps_per_epoch=30"
    )
    assert (experiment.data.dataset, experiment.data.validation) == ("cifar10", "test")
    assert experiment.data.augment.model_dump() == {
        "flip": 0.5,
        "pad": 0,
        "window": 20,
        "window_probability": 0.5,
    }
    assert experiment.train.steps_per_epoch == 30


def test_sequential_and_schedulers(imported):
    experiment, text = imported(
        "pydtnn_benchmark --lr_schedulers=warm_up,stop_at_loss,model_checkpoint,reduce_lr_every_nepochs "
        "--model_checkpoint_metric=val_categorical_accuracy --early_stopping_patience=3 --enable_gpu=yes "
        "--validation_split=0.2 --stop_at_loss_threshold=99"
    )
    assert (experiment.parallel.ranks, experiment.parallel.gpus_per_rank) == (1, 1)
    assert experiment.checkpoint.best == "accuracy"
    assert experiment.train.warm_up == WarmUpConfig(epochs=5, start=1.0)
    assert experiment.train.target == TargetMetricConfig(metric="val_accuracy", value=0.99)
    assert experiment.train.schedule == StepScheduleConfig(every=5, factor=0.1)
    assert "--early_stopping_patience 3 (PyDTNN ignores it" in " ".join(text.replace("#", "").split())


def test_the_warm_up_of_2020_is_in_batches(imported):
    experiment, _ = imported(f"{RUN.replace('early_stopping', 'warm_up')} --warm_up_batches=300")
    assert experiment.train.warm_up == WarmUpConfig(steps=300, start=0.0)


def test_losses_of_the_training_samples_stop_too(imported):
    experiment, _ = imported(f"{RUN} --early_stopping_metric=categorical_cross_entropy")
    assert experiment.train.early_stopping.metric == experiment.train.restore_best == "train_loss"


def test_nothing_is_watched_that_is_not_validated(imported):
    # PyDTNN holds back no validation samples by default.
    experiment, text = imported("mpirun -np 4 pydtnn_benchmark --evaluate=yes")
    assert (experiment.data.validation, experiment.train.early_stopping) == (0.0, None)
    assert (experiment.train.evaluate_before, experiment.checkpoint.best) == (False, None)
    assert "there are no validation samples" in " ".join(text.replace("#", "").split())


def test_speed_and_looking_inside(imported):
    experiment, _ = imported(
        f"{RUN} --dtype=float64 --tracing=True --profile=True --tensor_format=NCHW --enable_gpu=True --enable_nccl=True"
    )
    assert (experiment.train.precision, experiment.train.channels_last) == ("float64", False)
    assert (experiment.observe.trace, experiment.observe.profile) == (True, ProfileConfig(tool="cprofile"))
    assert (experiment.parallel.gpus_per_rank, experiment.parallel.gpu_exchange) == (1, "nccl")
    direct, _ = imported(f"{RUN} --enable_gpu=True --enable_gpudirect=True")
    assert direct.parallel.gpu_exchange == "cuda_aware"
    assert "without --enable_gpu" in imported(f"{RUN} --enable_nccl=True")[1]


def test_overlap_and_lone_ranks(imported):
    assert imported(f"{RUN} --non_blocking_mpi=True")[0].algorithm.bucket_mb > 0
    experiment, text = imported("mpirun -np 4 pydtnn_benchmark")
    assert experiment.parallel.ranks == 1
    assert "trains alone" in text


def test_every_option_is_told_of(imported):
    from nnlo_lib.compat.importers.options import parse_bool
    from nnlo_lib.compat.importers.pydtnn.options import OPTIONS

    words = {
        "lr_schedulers": "warm_up",
        "model": "simplemlp",
        "dataset": "mnist",
        "optimizer": "rmsprop",
        "metrics": "categorical_mse",
        "loss_func": "categorical_accuracy",
        "dtype": "float64",
        "tensor_format": "NCHW",
    }
    for name, option in OPTIONS.items():
        value = (
            words.get(name)
            or {int: "3", float: "0.25", str: "word", parse_bool: str(not option.default)}[option.parse]
        )
        needed = {
            "beta1": "--optimizer=adam",
            "beta2": "--optimizer=adam",
            "epsilon": "--optimizer=adam",
            "rho": "--optimizer=rmsprop",
        }
        command = f"mpirun -np 2 benchmarks_CNN.py --parallel=data {needed.get(name, '')} --{name}={value}"
        if name in ("parallel", "flip_images_prob", "crop_images_size", "crop_images_prob") or name.endswith(
            "_metric"
        ):
            continue
        _, text = imported(command)
        body = text.split(f"--{name}={value}", 1)[1]
        assert f"--{name} {value}" in " ".join(body.replace("#", "").split()) or value in body, name


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--model=simplecn", "no model 'simplecn'; did you mean 'simplecnn'?"),
        ("--optimizer=adm", "no optimizer 'adm'; did you mean 'adam'?"),
        ("--lr_schedulers=earlystopping", "no scheduler 'earlystopping'; did you mean 'early_stopping'?"),
        ("--batchsize=3", "unknown option --batchsize; did you mean 'batch_size'?"),
        ("--metrics=categorical_acuracy", "did you mean 'categorical_accuracy'?"),
        ("--dataset=mnit", "unknown data set 'mnit'; did you mean 'mnist'?"),
    ],
)
def test_mistakes(refused, option, sentence):
    assert sentence in refused(f"mpirun -np 2 benchmarks_CNN.py {option}")


def test_evaluation_only_names_the_command_of_nnlo(imported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "best.npz").write_bytes(b"")
    experiment, text = imported(
        f"{RUN} --evaluate_only=True --weights_and_bias_filename=best.npz --model=vgg3dobn"
    )
    assert (experiment.model.name, experiment.model.weights) == ("vgg3dobn", "best.npz")
    assert "nnlo evaluate best.npz --experiment FILE" in " ".join(text.replace("#", "").split())
    experiment, text = imported(f"{RUN} --weights_and_bias_filename=lost.npz")
    assert experiment.model.weights is None
    assert "lost.npz is no .npz file that exists" in " ".join(text.replace("#", "").split())


def test_the_first_simplecnn_has_neither_dropout_nor_padding(imported):
    experiment, _ = imported(
        f"{RUN} --loss_func=categorical_accuracy,categorical_cross_entropy --model=simplecnn"
    )
    assert experiment.model.args == {"dropout": 0.0, "padding": 0}


def test_synthetic_data_are_zeros_of_the_size_of_the_data_set(imported):
    experiment, text = imported(
        f"{RUN} --dataset=cifar10 --use_synthetic_data=True --dataset_train_path=/data/cifar"
    )
    assert (experiment.data.dataset, experiment.data.source) == ("synthetic", None)
    reader = experiment.data.reader
    assert (reader.content, reader.shape, reader.samples, reader.test_samples) == (
        "zeros",
        (3, 32, 32),
        50_000,
        10_000,
    )
    assert "--dataset_train_path /data/cifar (with --use_synthetic_data True)" in " ".join(
        text.replace("#", "").split()
    )


def test_the_npz_files_of_imagenet_are_read_from_two_folders(imported):
    experiment, text = imported(
        f"{RUN} --dataset=imagenet --dataset_train_path=/data/in/npz/train --dataset_test_path=/data/in/val/npz"
    )
    data = experiment.data
    assert (data.dataset, data.source) == ("imagenet-npz", "/data/in/npz/train")
    assert data.reader.model_dump(exclude_unset=True) == {
        "name": "arrays", "train": "*.npz", "test": "../../val/npz/*.npz", "features": "x", "labels": "y", "first_class": 1,
    }  # fmt: skip
    assert "one folder" not in text


def test_imagenet_without_folders_stays_the_catalog_s(imported):
    assert imported(f"{RUN} --dataset=imagenet")[0].data.dataset == "imagenet"


def test_decay_is_decoupled_for_every_optimizer(imported):
    for name, expected in {"sgd": "sgd", "rmsprop": "rmsprop", "adam": "adamw", "nadam": "nadam"}.items():
        rule = imported(f"{RUN} --optimizer={name} --decay=0.01")[0].train.optimizer
        assert (rule.name, rule.weight_decay, getattr(rule, "decoupled", True)) == (expected, 0.01, True)


def test_the_step_schedule_has_a_minimum(imported):
    experiment, _ = imported(
        "pydtnn_benchmark --lr_schedulers=reduce_lr_every_nepochs --reduce_lr_every_nepochs_min_lr=0.001"
    )
    assert experiment.train.schedule == StepScheduleConfig(every=5, factor=0.1, min_lr=0.001)
