"""PyDTNN's launcher benchmarks_CNN.py, later named pydtnn_benchmark: its options, models and data sets."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnlo_lib.compat.importers.command import set_launch_keys
from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.compat.importers.job_text import StartedCommand
from nnlo_lib.compat.importers.options import OptionSpec, ParsedOptions, parse_bool
from nnlo_lib.compat.importers.pydtnn_optimizer import (
    SCHEDULERS,
    is_2020_launcher,
    lacks_validation,
    metric_name,
    set_optimizer,
    set_schedulers,
)
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

PATHS = ("dataset_train_path", "dataset_test_path")
# Option that switches it on, option of its value, key of data.augment.
AUGMENTATIONS = (
    ("flip_images", "flip_images_prob", "flip"),
    ("crop_images", "crop_images_size", "window"),
    ("crop_images", "crop_images_prob", "window_probability"),
)
# Shape, classes, training and test samples. PyDTNN keeps no synthetic ImageNet in files, so nnlo stores fewer samples.
SYNTHETIC: dict[str, dict[str, Any]] = {
    "mnist": {"shape": [1, 28, 28], "classes": 10, "samples": 60_000, "test_samples": 10_000},
    "cifar10": {"shape": [3, 32, 32], "classes": 10, "samples": 50_000, "test_samples": 10_000},
    "imagenet": {"shape": [3, 227, 227], "classes": 1000, "samples": 10_000, "test_samples": 1_000},
}
SAME_NAMES = (
    "simplemlp simplecnn alexnet googlenet vgg1 vgg2 vgg3 vgg3do vgg3do2 vgg3dobn vgg11 vgg13 vgg16 vgg19"
)
MODELS = {
    **{name: name for name in SAME_NAMES.split()},
    **{f"resnet{depth}": f"resnet{depth}" for depth in (18, 20, 32, 34, 44, 50, 56, 101, 110, 152, 1202)},
    **{f"densenet{depth}": f"densenet{depth}" for depth in (121, 161, 169, 201)},
    **{f"vgg{depth}bn": f"vgg{depth}_bn" for depth in (11, 13, 16, 19)},
    "densenet": "densenet40", "inceptionv3": "inception_v3", "mobilenetv1": "mobilenet_v1", "resnet50v15": "resnet50",
}  # fmt: skip
# PyDTNN's AlexNet has neither grouped convolutions nor local response normalization.
TWO_TOWERS_IN_ONE = {"groups": 1, "normalize": False}
METRICS = {f"categorical_{name}" for name in ("accuracy", "hinge", "mse", "mae")} | {
    "regression_mse",
    "regression_mae",
}
NO_CHOICE = "PyTorch selects the implementation of layers"
NO_MODEL = "this option of PyDTNN's performance model does not affect training"
# Options without a key of their own: the default has the type of the value.
DEFAULTS: dict[str, Any] = {
    "model": "simplecnn", "dataset_train_path": None, "dataset_test_path": None, "test_as_validation": False,
    "validation_split": 0.0, "evaluate": False, "evaluate_only": False, "weights_and_bias_filename": None,
    "use_synthetic_data": False, "flip_images": False, "flip_images_prob": 0.5, "crop_images": False, "crop_images_size": 16,
    "crop_images_prob": 0.5, "optimizer": "sgd", "learning_rate": 0.01, "learning_rate_scaling": True, "momentum": 0.9,
    "decay": 0.0, "nesterov": False, "beta1": 0.99, "beta2": 0.999, "epsilon": 1e-7, "rho": 0.9,
    "loss_func": "categorical_cross_entropy", "metrics": "categorical_accuracy", "parallel": "sequential",
    "lr_schedulers": "early_stopping,reduce_lr_on_plateau,model_checkpoint", "non_blocking_mpi": False, "enable_gpu": False,
    "enable_nccl": False, **{f"{name}_{key}": value for name, values in SCHEDULERS.items() for key, value in values.items()},
}  # fmt: skip
# Options that only have a note: default and note.
NOTED: dict[str, tuple[Any, str]] = {
    "global_batch_size": (0, "PyDTNN computes it as --batch_size times ranks"),
    "history_file": (None, "nnlo writes the history to history.csv in the run folder"),
    "shared_storage": (True, "in nnlo, only rank 0 writes results"),
    "enable_gpudirect": (False, "nnlo sums vectors on GPUs by NCCL if each rank has a GPU, else through host memory"),
    "tracer_output": ("", "nnlo writes traces to the run folder"),
    **{
        f"enable_{name}": (False, NO_CHOICE)
        for name in ("best_of", "conv_gemm", "conv_winograd", "fused_bn_relu", "fused_conv_relu", "fused_conv_bn", "fused_conv_bn_relu")
    },
    **{f"enable_{name}": (True, NO_CHOICE) for name in ("memory_cache", "cudnn_auto_conv_alg")},
    **dict.fromkeys(("cpu_speed", "memory_bw", "network_bw", "network_lat", "network_alg"), (None, NO_MODEL)),
    **dict.fromkeys(("mpi_processes", "threads_per_process", "gpus_per_node"), (None, "PyDTNN overwrites it")),
}  # fmt: skip
PARSERS: dict[type, Callable[[str], Any]] = {bool: parse_bool, int: int, float: float}
OPTIONS = {
    "dataset": OptionSpec(default="mnist", key="data.dataset"),
    "batch_size": OptionSpec(int, 64, "train.batch_size"),
    "steps_per_epoch": OptionSpec(
        int, 0, "train.steps_per_epoch", to=lambda steps: steps or None,
        note="PyDTNN trains on the same first samples in each epoch; in nnlo, the samples differ between epochs",
    ),
    "num_epochs": OptionSpec(int, 1, "train.epochs"),
    "decay_rate": OptionSpec(float, 0.0, missing_reason="learning rates decay only by `train.schedule`"),
    "dtype": OptionSpec(default="float32", key="train.precision"),
    "tensor_format": OptionSpec(key="train.channels_last", to=lambda text: text == "NHWC"),
    "tracing": OptionSpec(parse_bool, False, "observe.trace"),
    "profile": OptionSpec(
        parse_bool, False, "observe.profile", to=lambda is_on: "cprofile" if is_on else None, note="in PyDTNN of the whole training"
    ),
    **{name: OptionSpec(PARSERS.get(type(value), str), value) for name, value in DEFAULTS.items()},
    **{name: OptionSpec(PARSERS.get(type(value), str), value, note=note) for name, (value, note) in NOTED.items()},
}  # fmt: skip
LOSSES = {"categorical_cross_entropy": "cross_entropy", "binary_cross_entropy": "binary_cross_entropy"}


def translate_training(command: StartedCommand) -> ExperimentDraft:
    """Translate a command of benchmarks_CNN. Raises UserError if an option is not valid."""
    draft = ExperimentDraft("Imported from PyDTNN's launcher:")
    options = ParsedOptions("PyDTNN's launcher", OPTIONS, command.options)
    draft.translate(options)
    draft.set("name", named(f"{options['model']}-{options['dataset']}"), "model and data set")
    _set_model(draft, options)
    set_launch_keys(draft, command)
    ranks = _set_ranks(draft, options, command.ranks[0])
    _set_data(draft, options)
    _set_files(draft, options)
    _set_loss(draft, options)
    set_optimizer(draft, options, ranks)
    set_schedulers(draft, options, ranks)
    _set_evaluation(draft, options)
    return draft


def _set_model(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set the model from PyDTNN's name, with or without the suffix of its data set; its weights if their file exists."""
    written = options["model"]
    short = re.sub(r"_(cifar10|imagenet|mnist)$", "", written)
    if short not in MODELS:
        raise UserError(f"--model: PyDTNN has no model '{written}'; {suggest_name(short, MODELS)}")
    name, args = MODELS[short], dict[str, Any]()
    if name == "alexnet" and options["dataset"] == "imagenet":
        # nnlo's alexnet has fewer filters for large images; PyDTNN's is the first AlexNet.
        name, args = "alexnet_2012", TWO_TOWERS_IN_ONE
    if name == "simplecnn" and is_2020_launcher(options):
        # The model of 2020 has neither dropout nor padding.
        args = {"dropout": 0.0, "padding": 0}
    block: dict[str, Any] = {"name": name, "args": args}
    words = ["model"]
    if (path := options["weights_and_bias_filename"]) is not None:
        # An experiment refuses files that do not exist.
        if Path(path).suffix == ".npz" and Path(path).is_file():
            block["weights"], words = path, ["model", "weights_and_bias_filename"]
        else:
            reason = f"{path} is no .npz file that exists; set model.weights to the path of the file"
            draft.lose(options.as_written("weights_and_bias_filename"), reason)
    draft.set("model", block, options.as_written(*words), f"nnlo has no model {name}")


def _set_ranks(draft: ExperimentDraft, options: ParsedOptions, processes: int) -> int:
    """Set the algorithm, GPUs and ranks, and return the number of data-parallel ranks."""
    source = options.as_written("parallel")
    if options["parallel"] != "data" and processes > 1:
        draft.override("parallel.ranks", 1, source)
        draft.note(f"{source}: each of PyDTNN's {processes} processes trains alone; nnlo uses one rank")
    if options["non_blocking_mpi"]:
        # PyDTNN starts an all-reduce per layer during the backward pass; buckets overlap in the same way.
        buckets = {"name": "allreduce", "bucket_mb": 1.0}
        draft.set("algorithm", buckets, options.as_written("non_blocking_mpi"))
    elif "parallel" in options:
        draft.set("algorithm", {"name": "allreduce"}, source)
    if options["enable_gpu"]:
        draft.override("parallel.gpus_per_rank", 1, options.as_written("enable_gpu"))
        if options["enable_nccl"]:
            draft.override("parallel.gpu_exchange", "nccl", options.as_written("enable_nccl"))
    elif options["enable_nccl"]:
        draft.note(f"{options.as_written('enable_nccl')} (without --enable_gpu)")
    return processes if options["parallel"] == "data" else 1


def _set_data(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set the validation samples and the augmentation."""
    if options["test_as_validation"]:
        draft.set("data.validation", "test", options.as_written("test_as_validation"))
    else:
        words = ["validation_split", *(name for name in ("test_as_validation",) if name in options)]
        draft.set("data.validation", options["validation_split"], options.as_written(*words))
    for flag, value, key in AUGMENTATIONS:
        if options[flag]:
            draft.set(f"data.augment.{key}", options[value], options.as_written(flag, value))


def _set_files(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set the source and the reader of the data: files of the command's folders, or synthetic samples."""
    paths = [name for name in PATHS if name in options]
    if options["use_synthetic_data"] and options["dataset"] in SYNTHETIC:
        source = options.as_written("use_synthetic_data")
        reader = {"name": "synthetic", "content": "zeros", **SYNTHETIC[options["dataset"]]}
        draft.override("data.dataset", "synthetic", f"{options.as_written('dataset')} {source}")
        draft.set("data.reader", reader, source)
        draft.note(f"{source}: content: classes gives samples that a model can learn")
        if options["dataset"] == "imagenet":
            draft.note(f"{source}: nnlo stores the samples, so that samples is 10,000 instead of 1,281,167")
        draft.note(*(f"{options.as_written(name)} (with {source})" for name in paths))
    elif options["dataset"] == "imagenet":
        _set_imagenet(draft, options, paths)
    elif paths:
        draft.set("data.source", options[paths[0]], options.as_written(*paths))
        if len({options[name] for name in paths}) > 1:
            reason = "nnlo reads all files of this data set from one folder, data.source"
            draft.lose(options.as_written("dataset_test_path"), reason)


def _set_imagenet(draft: ExperimentDraft, options: ParsedOptions, paths: list[str]) -> None:
    """Set the files that PyDTNN's converter writes: x (samples, 3, 227, 227), y (samples, 1) with classes from 1.

    Without a folder, the data set stays the TFRecords of the catalog.
    """
    draft.note(
        "imagenet: PyDTNN subtracts mean colors in BGR order; nnlo normalizes as set by data.normalize"
    )
    if "alexnet" not in options["model"]:
        draft.set("data.crop", 224, "PyDTNN crops 227 pixels to 224")
        draft.note("data.crop: PyDTNN always takes the same window; nnlo takes random windows in training")
    if "dataset_train_path" in options:
        train = options["dataset_train_path"]
        reader = {"name": "arrays", "train": "*.npz", "features": "x", "labels": "y", "first_class": 1}
        if "dataset_test_path" in options and options["dataset_test_path"] != train:
            reader["test"] = f"{os.path.relpath(options['dataset_test_path'], train)}/*.npz"
        draft.override("data.dataset", "imagenet-npz", "name for PyDTNN's NPZ files of ImageNet")
        draft.set("data.source", os.path.normpath(train), options.as_written("dataset_train_path"))
        draft.set("data.reader", reader, options.as_written(*paths))
    elif paths:
        draft.lose(options.as_written(*paths), "the folder of the training files is missing")


def _set_loss(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set the loss and the metrics.

    The launcher of 2020 has one list of losses and metrics, and uses the gradient of a single loss.
    """
    listed = options["loss_func"].split(",")
    # The launcher of 2020 computes this gradient even if no loss is listed.
    names = [name for name in listed if name in LOSSES] or ["categorical_cross_entropy"]
    draft.set("loss", LOSSES[names[0]], options.as_written("loss_func"))
    if "metrics" in options:
        listed = options["metrics"].split(",")
    metrics = ["accuracy"]
    for name in listed:
        if name not in LOSSES.keys() | METRICS | {"accuracy"}:
            raise UserError(
                f"--metrics: PyDTNN has no loss or metric '{name}'; {suggest_name(name, METRICS | set(LOSSES))}"
            )
        if name in METRICS:
            metrics.append(metric_name(name).removeprefix("regression_"))
    if set(metrics) - {"accuracy"}:
        draft.set("metrics", list(dict.fromkeys(metrics)), ",".join(listed))
        draft.note(
            f"{','.join(listed)}: PyDTNN compares probabilities with one-hot classes and sums absolute errors over "
            f"classes; nnlo compares the scores of the model and averages errors over classes"
        )


def _set_evaluation(draft: ExperimentDraft, options: ParsedOptions) -> None:
    if options["evaluate"]:
        source = options.as_written("evaluate")
        if not lacks_validation(options):
            draft.set("train.evaluate_before", True, source)
        draft.note(
            f"{source}: PyDTNN prints the metrics of the last batch as test metrics before and "
            "after the training; nnlo evaluates validation samples before and test samples after the training"
        )
    if options["evaluate_only"]:
        weights = options["weights_and_bias_filename"] or "WEIGHTS"
        draft.note(
            f"{options.as_written('evaluate_only')}: this experiment trains; to evaluate only, save it as FILE and type: nnlo "
            f"evaluate {weights} --experiment FILE"
        )
