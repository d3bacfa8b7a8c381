"""NNLO's TrainingDriver (nnlo/TrainingDriver.py): its options and their translation."""

import re
from pathlib import Path
from typing import Any

from nnlo_lib.compat.importers.command import set_launch_keys
from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.compat.importers.job_text import StartedCommand
from nnlo_lib.compat.importers.keras_options import LOSSES, set_algorithm
from nnlo_lib.compat.importers.nnlo_networks import GAN, ImportedNetwork, set_gan_problem, set_model
from nnlo_lib.compat.importers.options import OptionSpec, ParsedOptions, flag_option, parse_arguments
from nnlo_lib.core.errors import USER_CODE_ERRORS
from nnlo_lib.core.user_code import error_with_source_line, load_user_function, load_user_module

NEVER_READ = "the original NNLO accepts this option and never reads it"
NEVER_USED = "the original NNLO stores this value and never uses it"
METRICS = re.compile(r"^.*:")  # the model of a GAN before a metric, as in model:metric
OPTIONS = {
    "model": OptionSpec(),
    "backend": OptionSpec(default="keras", note="nnlo runs all networks with PyTorch"),
    "trial-name": OptionSpec(default="train"),
    "verbose": flag_option(NEVER_READ),
    "monitor": OptionSpec(None, False, "observe.monitor", to=lambda _: 0.5),  # seconds
    "timeline": flag_option(key="observe.trace"),
    "thread_validation": flag_option("not needed, because the ranks share the validation samples"),
    "train_data": OptionSpec(),
    "val_data": OptionSpec(),
    "features-name": OptionSpec(default="features"),
    "labels-name": OptionSpec(default="labels"),
    "batch": OptionSpec(int, 100, "train.batch_size"),
    "preload-data": OptionSpec(int, 0, note="not needed, because nnlo always reads large batches ahead"),
    "cache-data": OptionSpec(key="data.stage_to"),
    "copy-command": OptionSpec(),
    "n-masters": OptionSpec(int, 1),
    "n-processes": OptionSpec(int, 1, "parallel.processes_per_worker"),
    "max-gpus": OptionSpec(int, 1),
    "master-gpu": flag_option(key="parallel.master_gpu"),
    "synchronous": flag_option(),
    "epochs": OptionSpec(int, 1, "train.epochs"),
    "loss": OptionSpec(default="binary_crossentropy"),
    "mode": OptionSpec(default="gem"),
    "sync-every": OptionSpec(int, 1),
    "optimizer": OptionSpec(default="adam"),
    "worker-optimizer": OptionSpec(default="adam"),
    "worker-optimizer-params": OptionSpec(parse_arguments, {}),
    "elastic-force": OptionSpec(float, 0.9),
    "elastic-lr": OptionSpec(float, 1.0, note=NEVER_USED),
    "elastic-momentum": OptionSpec(float, 0.0, note=NEVER_USED),
    "gem-lr": OptionSpec(float, 0.01),
    "gem-momentum": OptionSpec(float, 0.9),
    "gem-kappa": OptionSpec(float, 2.0),
    "early-stopping": OptionSpec(key="train.early_stopping", to=lambda text: METRICS.sub("", text)),
    "target-metric": OptionSpec(key="train.target", to=lambda text: METRICS.sub("", text)),
    "restore": OptionSpec(
        note="run the same nnlo command again to resume an unchanged run from its newest checkpoint"
    ),
    "checkpoint": OptionSpec(),
    "checkpoint-interval": OptionSpec(int, 5),
    "log-file": OptionSpec(
        note="nnlo writes log.txt in the run folder; for another file: nnlo --log-file FILE"
    ),
    "log-level": OptionSpec(default="info", note="nnlo --log-level LEVEL: debug, info, warning or error"),
}
READER_OPTIONS = ("train_data", "val_data", "features-name", "labels-name")


def translate_training(command: StartedCommand) -> ExperimentDraft:
    """Translate a command of TrainingDriver. Raises UserError if an option is not valid."""
    draft = ExperimentDraft("Imported from NNLO's TrainingDriver:")
    options = ParsedOptions("TrainingDriver", OPTIONS, command.options)
    set_launch_keys(draft, command)
    set_training(draft, options, command.ranks[0])
    return draft


def set_training(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> ImportedNetwork:
    """Set all keys of a training and return its network."""
    draft.translate(options)
    model, source = str(options["model"]), options.as_written("model")
    network = set_model(draft, model, source)
    draft.set("name", named(f"{Path(model).stem}-{options['trial-name']}"), "model and trial")
    set_data(draft, options, network)
    if network is GAN:
        set_gan_problem(draft, source)
    else:
        _set_loss(draft, options)
    set_training_control(draft, options, ranks)
    return network


def set_training_control(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Set the algorithm, checkpoints, GPUs and copies of a training; name the difference of its early stopping."""
    set_algorithm(draft, options, ranks)
    if "~" not in (options["early-stopping"] or "~"):
        draft.note(
            f"{options.as_written('early-stopping')}: without ~, the original NNLO never stops early; nnlo does"
        )
    if options["checkpoint"]:
        every = options["checkpoint-interval"]
        source = options.as_written("checkpoint", "checkpoint-interval")
        draft.set("checkpoint.every", f"{every} epoch{'s' if every > 1 else ''}", source)
    elif "checkpoint-interval" in options:
        draft.note(
            f"{options.as_written('checkpoint-interval')} (without --checkpoint, no checkpoint is written)"
        )
    _set_gpus(draft, options, ranks)
    if "copy-command" in options:
        _set_copy_command(draft, options)


def _set_gpus(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Set the GPUs: the launcher's, else the visible GPUs; none with --max-gpus 0."""
    if not any(setting.key == "parallel.gpus_per_rank" for setting in draft.settings):
        draft.set("parallel.gpus_per_rank", "auto", "visible GPUs, as originally; write 0 or 1 on a cluster")
    limit, source = int(options["max-gpus"]), options.as_written("max-gpus")
    if "max-gpus" in options and limit == 0:
        draft.override("parallel.gpus_per_rank", 0, source)
    elif "max-gpus" in options and limit < 0:
        draft.note(f"{source}: all visible GPUs (parallel.gpus_per_rank: auto)")
    elif "max-gpus" in options:
        draft.set("parallel.ranks_per_gpu", -(-ranks // limit), f"{source}, on each host")


def _set_copy_command(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set the command that copies files to the cache: NNLO's has two places `{}`, for source and target."""
    command, source = str(options["copy-command"]), options.as_written("copy-command")
    if not options["cache-data"]:
        draft.lose(source, "NNLO copies files only with --cache-data")
        return
    words = command if "{}" in command else f"{command} {{}} {{}}"
    staged = words.replace("{}", "{source}", 1).replace("{}", "{target}", 1)
    draft.set("data.stage_command", staged, source)
    draft.note(
        f"{source}: nnlo copies the files of its store, by absolute path; a URL of a server has to be part of data.stage_command"
    )


def set_data(draft: ExperimentDraft, options: ParsedOptions, network: ImportedNetwork) -> None:
    """Set the data files if the command names them, otherwise the data set of the model's module."""
    if not options["train_data"]:
        _set_data_of_model(draft, network, f"get_train() of {options['model']}")
        return
    train, val = Path(options["train_data"]), Path(options["val_data"] or options["train_data"])
    reader: dict[str, Any] = {"name": "arrays", "train": train.name, "features": options["features-name"]}
    if options["val_data"]:
        reader["validation"] = val.name if val.parent == train.parent else str(val.absolute())
        draft.set("data.validation", "validation", "the original NNLO validates on all of --val_data")
    if not network.is_user_file and not network.name.endswith(".json"):
        reader["channels"] = "last"  # layout of images in Keras
    if options["labels-name"] != "labels":
        reader["labels"] = options["labels-name"]
    if network is GAN:
        # The 3-D GAN's label file is a group of arrays.
        reader |= {"labels": f"{options['labels-name']}/b", "one_hot": False}
        draft.note(
            "Labels of showers are a (ones), b (energies) and c (sums of cells); nnlo reads only the energies."
        )
    source = options.as_written(*(name for name in READER_OPTIONS if name in options))
    draft.set("data.dataset", f"{train.stem}-files", "name for the files")
    draft.set("data.source", str(train.parent), "folder of the file lists")
    draft.set("data.reader", reader, source)
    draft.note(
        "The original NNLO assigns whole files to workers, reads them in order and never shuffles; in nnlo, the samples "
        "of all files are shuffled in each epoch and divided among the workers (data.partition)."
    )


def _set_data_of_model(draft: ExperimentDraft, network: ImportedNetwork, source: str) -> None:
    """Set the data that the model's module names, or the data set of a network of NNLO."""
    names, missing = dict[str, Any](), "its files are unknown: set `dataset`, or `source` and `reader`"
    try:
        # The functions may be imported from another module, so the text of the file does not show them.
        names = vars(load_user_module(network.name)) if network.is_user_file else {}
    except USER_CODE_ERRORS as error:
        lacks_keras = isinstance(error, ModuleNotFoundError) and error.name == "keras"
        remedy = "pip install 'nnlo[keras]'" if lacks_keras else "correct the file"
        missing = f"{network.name} cannot be loaded ({error_with_source_line(error)}); {remedy}, and import the command again"
    if "get_train" in names:
        draft.set("data.dataset", f"{Path(network.name).stem}-files", "name for the files")
        draft.set("data.source", ".", "folder of relative file names")
        draft.set("data.reader", {"name": "arrays", "train": network.name}, f"{source}, get_val() ...")
        if "get_val" in names:
            draft.set("data.validation", "validation", "the original NNLO validates on all of get_val()")
    elif network.dataset and "cannot be loaded" not in missing:
        draft.set("data.dataset", network.dataset, source)
        draft.set("data.validation", "test", f"get_val(): the test files of {network.dataset}")
    else:
        draft.set("data.dataset", "your-data", source, missing)


def _set_loss(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set the loss by its name in experiment files."""
    name = LOSSES.get(options["loss"], options["loss"])
    # NNLO's default loss is binary cross-entropy, also for models that end in softmax; the loss must then read
    # probabilities instead of scores.
    if name == "binary_cross_entropy" and _ends_in_softmax(Path(str(options["model"]))):
        block = {"name": "classification", "outputs": "probabilities"}
        draft.set("problem", block, "the network ends in softmax")
    draft.set("loss", name, options.as_written("loss"), f"nnlo has no loss {name}")
    if name == "binary_cross_entropy":
        draft.note(
            f"{options.as_written('loss')}: the original NNLO computes this loss for each output of a softmax; nnlo "
            f"computes it for the logistic function of each score."
        )


def _ends_in_softmax(path: Path) -> bool:
    """Return True if a network of Keras, a JSON file or what get_model() of a module returns, ends in softmax."""
    if path.suffix not in (".json", ".py") or not path.is_file():
        return False
    if path.suffix == ".json":
        return "softmax" in path.read_text()
    try:
        layers = getattr(load_user_function(str(path))(), "layers", [])
    except USER_CODE_ERRORS:
        # `nnlo check` reports the error of the model.
        return False
    return bool(layers) and getattr(getattr(layers[-1], "activation", None), "__name__", "") == "softmax"
