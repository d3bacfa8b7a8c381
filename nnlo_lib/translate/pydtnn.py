"""PyDTNN's launcher, benchmarks_CNN.py, later pydtnn_benchmark."""

from nnlo_lib.config import nearest
from nnlo_lib.errors import UserError
from nnlo_lib.translate.command_line import CommandLine
from nnlo_lib.translate.draft import Draft, named
from nnlo_lib.translate.nnlo import machine
from nnlo_lib.translate.options import Options
from nnlo_lib.translate.pydtnn_models import model
from nnlo_lib.translate.pydtnn_optimizer import of_2020, optimizer
from nnlo_lib.translate.pydtnn_options import OPTIONS
from nnlo_lib.translate.pydtnn_schedulers import is_blind, measure, schedulers

WIRES = {"enable_gpudirect": "cuda_aware", "enable_nccl": "nccl"}
LOSSES = {"categorical_cross_entropy": "cross_entropy", "binary_cross_entropy": "binary_cross_entropy"}


def training(command: CommandLine) -> Draft:
    """Translate a benchmarks_CNN."""
    draft = Draft("PyDTNN's launcher, imported:")
    options = Options("PyDTNN's launcher", OPTIONS, command.words)
    draft.carry(options)
    draft.set("name", named(f"{options['model']}-{options['dataset']}"), "model and data set")
    model(draft, options, of_2020(options))
    _machine(draft, options, command)
    _data(draft, options)
    _loss(draft, options)
    ranks = command.ranks if options["parallel"] == "data" else 1
    optimizer(draft, options, ranks)
    schedulers(draft, options, ranks)
    _looks(draft, options)
    return draft


def _machine(draft: Draft, options: Options, command: CommandLine) -> None:
    machine(draft, command)
    if options["parallel"] != "data" and command.ranks > 1:
        draft.override("parallel.ranks", 1, options.said("parallel"))
        draft.remarks.append(
            f"{options.said('parallel')}: PyDTNN's {command.ranks} processes each trained alone"
        )
    if options["non_blocking_mpi"]:
        draft.set("algorithm", {"name": "allreduce", "bucket_mb": 1.0}, options.said("non_blocking_mpi"))
    elif "parallel" in options:
        draft.set("algorithm", {"name": "allreduce"}, options.said("parallel"))
    wires = {name: how for name, how in WIRES.items() if options[name]}
    if options["enable_gpu"]:
        draft.override("parallel.gpus_per_rank", 1, options.said("enable_gpu"))
        for name, how in wires.items():
            draft.override("parallel.gpu_exchange", how, options.said(name))
    else:
        draft.idle += [f"{options.said(name)} (without --enable_gpu)" for name in wires]


def _data(draft: Draft, options: Options) -> None:
    paths = [name for name in ("dataset_train_path", "dataset_test_path") if name in options]
    if paths:
        draft.set("data.source", options[paths[0]], options.said(*paths))
    if len({options[name] for name in paths}) > 1:
        draft.later(options.said("dataset_test_path"), "the files of a data set lie in one folder")
    if options["dataset"] == "imagenet":
        draft.remarks.append(
            "imagenet: PyDTNN subtracted mean colours, in BGR; here it is as data.normalize says"
        )
    if options["test_as_validation"]:
        draft.set("data.validation", "test", options.said("test_as_validation"))
    else:
        words = [name for name in ("test_as_validation",) if name in options]
        draft.set("data.validation", options["validation_split"], options.said("validation_split", *words))
    if options["steps_per_epoch"]:
        draft.set("train.steps_per_epoch", options["steps_per_epoch"], options.said("steps_per_epoch"))
        draft.remarks.append(
            f"{options.said('steps_per_epoch')}: PyDTNN trained on the same first samples in each epoch"
        )
    if options["flip_images"]:
        draft.set(
            "data.augment.flip", options["flip_images_prob"], options.said("flip_images", "flip_images_prob")
        )
    if options["crop_images"]:
        draft.set(
            "data.augment.window",
            options["crop_images_size"],
            options.said("crop_images", "crop_images_size"),
        )
        draft.set(
            "data.augment.window_probability", options["crop_images_prob"], options.said("crop_images_prob")
        )


def _loss(draft: Draft, options: Options) -> None:
    """Take the loss; the old launcher had one list of losses and metrics, and always the gradient of one."""
    listed = options["loss_func"].split(",")
    names = [name for name in listed if name in LOSSES] or ["categorical_cross_entropy"]
    name = LOSSES[names[0]]
    draft.set("loss", name, options.said("loss_func"))
    if "metrics" in options:
        listed = options["metrics"].split(",")
    metrics = [_metric(each) for each in listed if each not in LOSSES and each != "accuracy"]
    if set(metrics) - {"accuracy"}:
        draft.set("metrics", list(dict.fromkeys(["accuracy", *metrics])), ",".join(listed))
        draft.remarks.append(
            f"{','.join(listed)}: PyDTNN compared probabilities with one-hot classes and summed absolute errors over "
            f"them; here the scores of the model are compared, and errors are means over classes"
        )


def _metric(name: str) -> str:
    """Return what a metric is here. Raises UserError if there is none of that name."""
    known = {
        "categorical_accuracy",
        "categorical_hinge",
        "categorical_mse",
        "categorical_mae",
        "regression_mse",
        "regression_mae",
    }
    if name not in known:
        raise UserError(f"PyDTNN has no loss or metric '{name}'; {nearest(name, known | set(LOSSES))}")
    return measure(name).removeprefix("regression_")


def _looks(draft: Draft, options: Options) -> None:
    if options["evaluate"]:
        if not is_blind(options):
            draft.set("train.evaluate_before", True, options.said("evaluate"))
        draft.remarks.append(
            f"{options.said('evaluate')}: PyDTNN printed the metrics of its last batch as those of the test, before and "
            "after; here validation samples are evaluated before, those of the test after"
        )
    if "tensor_format" in options:
        draft.set("train.channels_last", options["tensor_format"] == "NHWC", options.said("tensor_format"))
    if options["tracing"]:
        draft.set("observe.trace", True, options.said("tracing"))
    if options["profile"]:
        draft.set("observe.profile", "cprofile", f"{options.said('profile')}, there of the whole training")
