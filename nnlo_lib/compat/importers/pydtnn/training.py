"""PyDTNN's launcher benchmarks_CNN.py, later named pydtnn_benchmark."""

from nnlo_lib.compat.importers.command_line import CommandLine
from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.compat.importers.nnlo.training import set_resources
from nnlo_lib.compat.importers.options import ParsedOptions
from nnlo_lib.compat.importers.pydtnn.data_files import set_files
from nnlo_lib.compat.importers.pydtnn.models import set_model
from nnlo_lib.compat.importers.pydtnn.optimizer import is_2020_launcher, set_optimizer
from nnlo_lib.compat.importers.pydtnn.options import OPTIONS
from nnlo_lib.compat.importers.pydtnn.schedulers import lacks_validation, metric_name, set_schedulers
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

LOSSES = {"categorical_cross_entropy": "cross_entropy", "binary_cross_entropy": "binary_cross_entropy"}


def translate_training(command: CommandLine) -> ExperimentDraft:
    """Translate a command of benchmarks_CNN. Raises UserError if an option is not valid."""
    draft = ExperimentDraft("Imported from PyDTNN's launcher:")
    options = ParsedOptions("PyDTNN's launcher", OPTIONS, command.words)
    draft.translate_options(options)
    draft.set("name", named(f"{options['model']}-{options['dataset']}"), "model and data set")
    set_model(draft, options, is_2020_launcher(options))
    _machine(draft, options, command)
    _data(draft, options)
    _loss(draft, options)
    ranks = command.ranks if options["parallel"] == "data" else 1
    set_optimizer(draft, options, ranks)
    set_schedulers(draft, options, ranks)
    _observation(draft, options)
    return draft


def _machine(draft: ExperimentDraft, options: ParsedOptions, command: CommandLine) -> None:
    set_resources(draft, command)
    if options["parallel"] != "data" and command.ranks > 1:
        draft.override("parallel.ranks", 1, options.as_written("parallel"))
        draft.remarks.append(
            f"{options.as_written('parallel')}: each of PyDTNN's {command.ranks} processes trains alone; nnlo uses one rank"
        )
    if options["non_blocking_mpi"]:
        # PyDTNN starts an all-reduce per layer during the backward pass; buckets overlap in the same way.
        draft.set(
            "algorithm", {"name": "allreduce", "bucket_mb": 1.0}, options.as_written("non_blocking_mpi")
        )
    elif "parallel" in options:
        draft.set("algorithm", {"name": "allreduce"}, options.as_written("parallel"))
    if options["enable_gpu"]:
        draft.override("parallel.gpus_per_rank", 1, options.as_written("enable_gpu"))
        if options["enable_nccl"]:
            draft.override("parallel.gpu_exchange", "nccl", options.as_written("enable_nccl"))
    elif options["enable_nccl"]:
        draft.ineffective.append(f"{options.as_written('enable_nccl')} (without --enable_gpu)")


def _data(draft: ExperimentDraft, options: ParsedOptions) -> None:
    set_files(draft, options)
    if options["test_as_validation"]:
        draft.set("data.validation", "test", options.as_written("test_as_validation"))
    else:
        words = [name for name in ("test_as_validation",) if name in options]
        draft.set(
            "data.validation", options["validation_split"], options.as_written("validation_split", *words)
        )
    if options["steps_per_epoch"]:
        draft.set("train.steps_per_epoch", options["steps_per_epoch"], options.as_written("steps_per_epoch"))
        draft.remarks.append(
            f"{options.as_written('steps_per_epoch')}: PyDTNN trains on the same first samples in each epoch; in nnlo, "
            "the samples differ between epochs"
        )
    if options["flip_images"]:
        draft.set(
            "data.augment.flip",
            options["flip_images_prob"],
            options.as_written("flip_images", "flip_images_prob"),
        )
    if options["crop_images"]:
        draft.set(
            "data.augment.window",
            options["crop_images_size"],
            options.as_written("crop_images", "crop_images_size"),
        )
        draft.set(
            "data.augment.window_probability",
            options["crop_images_prob"],
            options.as_written("crop_images_prob"),
        )


def _loss(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set the loss and the metrics.

    The launcher of 2020 has one list of losses and metrics, and uses the gradient of a single loss.
    """
    listed = options["loss_func"].split(",")
    # The launcher of 2020 computes this gradient even if no loss is listed.
    names = [name for name in listed if name in LOSSES] or ["categorical_cross_entropy"]
    name = LOSSES[names[0]]
    draft.set("loss", name, options.as_written("loss_func"))
    if "metrics" in options:
        listed = options["metrics"].split(",")
    metrics = [_metric(each) for each in listed if each not in LOSSES and each != "accuracy"]
    if set(metrics) - {"accuracy"}:
        draft.set("metrics", list(dict.fromkeys(["accuracy", *metrics])), ",".join(listed))
        draft.remarks.append(
            f"{','.join(listed)}: PyDTNN compares probabilities with one-hot classes and sums absolute errors over "
            f"classes; nnlo compares the scores of the model and averages errors over classes"
        )


def _metric(name: str) -> str:
    """Return the name of a metric in experiment files. Raises UserError if PyDTNN has no such metric."""
    known = {
        "categorical_accuracy",
        "categorical_hinge",
        "categorical_mse",
        "categorical_mae",
        "regression_mse",
        "regression_mae",
    }
    if name not in known:
        raise UserError(
            f"--metrics: PyDTNN has no loss or metric '{name}'; {suggest_name(name, known | set(LOSSES))}"
        )
    return metric_name(name).removeprefix("regression_")


def _observation(draft: ExperimentDraft, options: ParsedOptions) -> None:
    if options["evaluate"]:
        if not lacks_validation(options):
            draft.set("train.evaluate_before", True, options.as_written("evaluate"))
        draft.remarks.append(
            f"{options.as_written('evaluate')}: PyDTNN prints the metrics of the last batch as test metrics before and "
            "after the training; nnlo evaluates validation samples before and test samples after the training"
        )
    if options["evaluate_only"]:
        draft.remarks.append(
            f"{options.as_written('evaluate_only')}: this experiment trains; to evaluate only, save it as FILE and type: nnlo "
            f"evaluate {options['weights_and_bias_filename'] or 'WEIGHTS'} --experiment FILE"
        )
    if "tensor_format" in options:
        draft.set(
            "train.channels_last", options["tensor_format"] == "NHWC", options.as_written("tensor_format")
        )
    if options["tracing"]:
        draft.set("observe.trace", True, options.as_written("tracing"))
    if options["profile"]:
        draft.set(
            "observe.profile", "cprofile", f"{options.as_written('profile')}, in PyDTNN of the whole training"
        )
