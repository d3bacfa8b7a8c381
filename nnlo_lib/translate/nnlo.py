"""NNLO's TrainingDriver (nnlo/TrainingDriver.py)."""

from pathlib import Path
from typing import Any

from nnlo_lib.translate.command_line import CommandLine
from nnlo_lib.translate.draft import Draft, named
from nnlo_lib.translate.networks import GAN, Network, adversaries, network
from nnlo_lib.translate.nnlo_algorithm import algorithm
from nnlo_lib.translate.nnlo_options import OPTIONS
from nnlo_lib.translate.options import Options

LOSSES = {
    "categorical_crossentropy": "cross_entropy", "sparse_categorical_crossentropy": "cross_entropy",
    "mse": "mse", "mean_squared_error": "mse", "mae": "mae", "mean_absolute_error": "mae",
    "binary_crossentropy": "binary_cross_entropy", "categorical_hinge": "hinge", "hinge": "hinge",
}  # fmt: skip
PLACES = "the profile (profiles/) and `resources:` say where ranks run"
OF_READER = ("train_data", "val_data", "features-name", "labels-name")


def training(command: CommandLine) -> Draft:
    """Translate a TrainingDriver."""
    draft = Draft("NNLO's TrainingDriver, imported:")
    options = Options("TrainingDriver", OPTIONS, command.words)
    machine(draft, command)
    trained(draft, options, command.ranks)
    return draft


def machine(draft: Draft, command: CommandLine) -> None:
    """Set ranks, GPUs and threads; tell what the launcher was told besides."""
    draft.set("parallel.ranks", command.ranks, f"{command.ranks} processes")
    if command.gpus:
        draft.set("parallel.gpus_per_rank", 1, f"-g {command.gpus}")
    if command.threads > 1:
        draft.set("parallel.threads_per_rank", command.threads, "OMP_NUM_THREADS")
    for place in command.places:
        draft.remarks.append(f"{place}: {PLACES}")


def trained(draft: Draft, options: Options, ranks: int) -> Network:
    """Set all that a training is."""
    draft.carry(options)
    found = network(draft, str(options["model"]), options.said("model"))
    name = f"{Path(str(options['model'])).stem}-{options['trial-name']}"
    draft.set("name", named(name), "model and trial")
    data(draft, options, found)
    if found is GAN:
        adversaries(draft, options.said("model"))
    else:
        loss(draft, options)
    conduct(draft, options, ranks)
    return found


def conduct(draft: Draft, options: Options, ranks: int) -> None:
    """Set how ranks agree, when they stop and save, what they compute on and what is looked at."""
    algorithm(draft, options, ranks)
    stopping(draft, options)
    checkpoints(draft, options)
    if "max-gpus" in options:
        draft.override("parallel.gpus_per_rank", int(options["max-gpus"] != 0), options.said("max-gpus"))
    if traced := [name for name in ("timeline", "trace") if options[name]]:
        draft.set("observe.trace", True, options.said(*traced))
    if options["monitor"]:
        draft.set("observe.monitor", 0.5, f"{options.said('monitor')}, which looked so often")


def data(draft: Draft, options: Options, found: Network) -> None:
    """Set files where they are named, else the data set that the model's module brings along."""
    if not options["train_data"]:
        said = f"get_train() of {options['model']}"
        if found.own and "get_train" in Path(found.name).read_text(errors="replace"):
            draft.set("data.dataset", f"{Path(found.name).stem}-files", "a name for the files")
            draft.set("data.source", ".", "where relative names of files begin")
            draft.set("data.reader", {"name": "arrays", "train": found.name}, f"{said}, get_val() ...")
            draft.set("data.validation", "validation", "the root validated on all of get_val()")
        elif found.dataset:
            draft.set("data.dataset", found.dataset, said)
            draft.set("data.validation", "test", f"get_val() of {options['model']}: its test files")
        else:
            draft.later(said, "its files are not known; until you set data: it is the default data set")
        return
    train, val = Path(options["train_data"]), Path(options["val_data"] or options["train_data"])
    reader: dict[str, Any] = {"name": "arrays", "train": train.name, "features": options["features-name"]}
    if options["val_data"]:
        reader["validation"] = val.name if val.parent == train.parent else str(val.absolute())
        draft.set("data.validation", "validation", "the root validated on all of --val_data")
    if not found.own and not found.name.endswith(".json"):
        reader["channels"] = "last"  # as Keras has images
    if options["labels-name"] != "labels":
        reader["labels"] = options["labels-name"]
    if found is GAN:
        reader |= {"labels": f"{options['labels-name']}/b", "one_hot": False}
        draft.remarks.append(
            "Of the labels of showers, a: ones, b: energies, c: sums of cells, only the energies are read."
        )
    said = options.said(*(name for name in OF_READER if name in options))
    draft.set("data.dataset", f"{train.stem}-files", "a name for the files")
    draft.set("data.source", str(train.parent), "where the lists are")
    draft.set("data.reader", reader, said)
    draft.remarks.append(
        "NNLO gave each worker whole files, read them in their order and never shuffled; here the samples of all files "
        "are shuffled in each epoch and cut among the workers (data.partition)."
    )


def loss(draft: Draft, options: Options) -> None:
    """Set the loss by its name here."""
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
        "loss", name, options.said("loss"), f"the loss {name} is not there; instead it is cross_entropy"
    )
    if name == "binary_cross_entropy":
        draft.remarks.append(
            f"{options.said('loss')}: NNLO took it of each output of a softmax; here it is of each score's logistic "
            f"function."
        )


def stopping(draft: Draft, options: Options) -> None:
    """Set early stopping and the target, in NNLO's own form."""
    for name, key in (("early-stopping", "early_stopping"), ("target-metric", "target")):
        if options[name]:
            text = options[name].rpartition(":")[2]  # a GAN's metrics are model:metric
            draft.set(f"train.{key}", text, options.said(name))
    if options["early-stopping"] and "~" not in options["early-stopping"]:
        draft.remarks.append(f"{options.said('early-stopping')}: without ~ NNLO never stopped; here it does")


def checkpoints(draft: Draft, options: Options) -> None:
    """Set how often a run is saved."""
    if options["checkpoint"]:
        every = options["checkpoint-interval"]
        said = options.said("checkpoint", "checkpoint-interval")
        draft.set("checkpoint.every", f"{every} epoch{'s' if every > 1 else ''}", said)
    elif "checkpoint-interval" in options:
        draft.idle.append(f"{options.said('checkpoint-interval')} (nothing is saved without --checkpoint)")
