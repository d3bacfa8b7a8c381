"""NNLO's TrainingDriver (nnlo/TrainingDriver.py)."""

from pathlib import Path
from typing import Any

from nnlo_lib.compat.importers.command_line import CommandLine
from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.compat.importers.networks import GAN, ImportedNetwork, set_gan_problem, set_model
from nnlo_lib.compat.importers.nnlo.algorithm import set_algorithm
from nnlo_lib.compat.importers.nnlo.options import OPTIONS
from nnlo_lib.compat.importers.options import ParsedOptions

LOSSES = {
    "categorical_crossentropy": "cross_entropy", "sparse_categorical_crossentropy": "cross_entropy",
    "mse": "mse", "mean_squared_error": "mse", "mae": "mae", "mean_absolute_error": "mae",
    "binary_crossentropy": "binary_cross_entropy", "categorical_hinge": "hinge", "hinge": "hinge",
}  # fmt: skip
PLACEMENT_NOTE = "the profile (profiles/) and `resources:` say where ranks run"
READER_OPTIONS = ("train_data", "val_data", "features-name", "labels-name")


def translate_training(command: CommandLine) -> ExperimentDraft:
    """Translate a command of TrainingDriver. Raises UserError."""
    draft = ExperimentDraft("NNLO's TrainingDriver, imported:")
    options = ParsedOptions("TrainingDriver", OPTIONS, command.words)
    set_resources(draft, command)
    set_training(draft, options, command.ranks)
    return draft


def set_resources(draft: ExperimentDraft, command: CommandLine) -> None:
    """Set ranks, GPUs and threads; record the launcher's other options as remarks."""
    draft.set("parallel.ranks", command.ranks, f"{command.ranks} processes")
    if command.gpus:
        draft.set("parallel.gpus_per_rank", 1, f"-g {command.gpus}")
    if command.threads > 1:
        draft.set("parallel.threads_per_rank", command.threads, "OMP_NUM_THREADS")
    for place in command.placement_options:
        draft.remarks.append(f"{place}: {PLACEMENT_NOTE}")


def set_training(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> ImportedNetwork:
    """Set all keys of a training; return its network."""
    draft.translate_options(options)
    found = set_model(draft, str(options["model"]), options.as_written("model"))
    name = f"{Path(str(options['model'])).stem}-{options['trial-name']}"
    draft.set("name", named(name), "model and trial")
    set_data(draft, options, found)
    if found is GAN:
        set_gan_problem(draft, options.as_written("model"))
    else:
        set_loss(draft, options)
    set_training_control(draft, options, ranks)
    return found


def set_training_control(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Set algorithm, stopping, checkpoints, GPUs and observation of a training."""
    set_algorithm(draft, options, ranks)
    set_stopping(draft, options)
    set_checkpoints(draft, options)
    if "max-gpus" in options:
        draft.override(
            "parallel.gpus_per_rank", int(options["max-gpus"] != 0), options.as_written("max-gpus")
        )
    if traced := [name for name in ("timeline", "trace") if options[name]]:
        draft.set("observe.trace", True, options.as_written(*traced))
    if options["monitor"]:
        draft.set("observe.monitor", 0.5, f"{options.as_written('monitor')}, which looked so often")


def set_data(draft: ExperimentDraft, options: ParsedOptions, found: ImportedNetwork) -> None:
    """Set the data files if the command names them, otherwise the data set of the model's module."""
    if not options["train_data"]:
        said = f"get_train() of {options['model']}"
        if found.is_user_file and "get_train" in Path(found.name).read_text(errors="replace"):
            draft.set("data.dataset", f"{Path(found.name).stem}-files", "a name for the files")
            draft.set("data.source", ".", "where relative names of files begin")
            draft.set("data.reader", {"name": "arrays", "train": found.name}, f"{said}, get_val() ...")
            draft.set("data.validation", "validation", "the root validated on all of get_val()")
        elif found.dataset:
            draft.set("data.dataset", found.dataset, said)
            draft.set("data.validation", "test", f"get_val() of {options['model']}: its test files")
        else:
            draft.add_untranslatable(
                said, "its files are not known; until you set data: it is the default data set"
            )
        return
    train, val = Path(options["train_data"]), Path(options["val_data"] or options["train_data"])
    reader: dict[str, Any] = {"name": "arrays", "train": train.name, "features": options["features-name"]}
    if options["val_data"]:
        reader["validation"] = val.name if val.parent == train.parent else str(val.absolute())
        draft.set("data.validation", "validation", "the root validated on all of --val_data")
    if not found.is_user_file and not found.name.endswith(".json"):
        reader["channels"] = "last"  # Keras's layout of images
    if options["labels-name"] != "labels":
        reader["labels"] = options["labels-name"]
    if found is GAN:
        reader |= {"labels": f"{options['labels-name']}/b", "one_hot": False}
        draft.remarks.append(
            "Of the labels of showers, a: ones, b: energies, c: sums of cells, only the energies are read."
        )
    said = options.as_written(*(name for name in READER_OPTIONS if name in options))
    draft.set("data.dataset", f"{train.stem}-files", "a name for the files")
    draft.set("data.source", str(train.parent), "where the lists are")
    draft.set("data.reader", reader, said)
    draft.remarks.append(
        "NNLO gave each worker whole files, read them in their order and never shuffled; here the samples of all files "
        "are shuffled in each epoch and cut among the workers (data.partition)."
    )


def set_loss(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set the loss under its name in experiments."""
    name = LOSSES.get(options["loss"], options["loss"])
    path = Path(str(options["model"]))
    if (
        name == "binary_cross_entropy"
        and path.suffix == ".json"
        and path.is_file()
        and "softmax" in path.read_text()
    ):
        draft.set(
            "problem", {"name": "classification", "outputs": "probabilities"}, "the network ends in softmax"
        )
    draft.set(
        "loss", name, options.as_written("loss"), f"the loss {name} is not there; instead it is cross_entropy"
    )
    if name == "binary_cross_entropy":
        draft.remarks.append(
            f"{options.as_written('loss')}: NNLO took it of each output of a softmax; here it is of each score's logistic "
            f"function."
        )


def set_stopping(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set early stopping and the target in NNLO's notation."""
    for name, key in (("early-stopping", "early_stopping"), ("target-metric", "target")):
        if options[name]:
            text = options[name].rpartition(":")[2]  # metrics of a GAN are written model:metric
            draft.set(f"train.{key}", text, options.as_written(name))
    if options["early-stopping"] and "~" not in options["early-stopping"]:
        draft.remarks.append(
            f"{options.as_written('early-stopping')}: without ~ NNLO never stopped; here it does"
        )


def set_checkpoints(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set how often checkpoints are written."""
    if options["checkpoint"]:
        every = options["checkpoint-interval"]
        said = options.as_written("checkpoint", "checkpoint-interval")
        draft.set("checkpoint.every", f"{every} epoch{'s' if every > 1 else ''}", said)
    elif "checkpoint-interval" in options:
        draft.ineffective.append(
            f"{options.as_written('checkpoint-interval')} (nothing is saved without --checkpoint)"
        )
