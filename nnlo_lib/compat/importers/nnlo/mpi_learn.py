"""mpi_learn's MPIDriver, and the GAN driver MPIGDriver of mpi_learn and NNLO."""

import re

from nnlo_lib.compat.importers.command_line import CommandLine
from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.compat.importers.networks import GAN, set_gan_problem
from nnlo_lib.compat.importers.nnlo.options import OPTIONS as NNLO
from nnlo_lib.compat.importers.nnlo.training import (
    set_data,
    set_resources,
    set_training,
    set_training_control,
)
from nnlo_lib.compat.importers.options import OptionSpec, ParsedOptions, flag_option

POSITIONAL = ("model", "train_data", "val_data")
TORCH = "nnlo runs all networks with PyTorch"
OPTIONS = {
    **{name: option for name, option in NNLO.items() if name not in {*POSITIONAL, "backend"}},
    "tf": flag_option(TORCH),
    "torch": flag_option(TORCH),
    "profile": flag_option("nnlo does not support Theano"),
    "trace": flag_option(),
    "max-gpus": OptionSpec(int, -1),
    "mode": OptionSpec(default="sgd"),
    "easgd": flag_option(),
    "worker-optimizer": OptionSpec(default="sgd"),
    # Unlike NNLO, mpi_learn passes them to the SGD of the workers.
    "elastic-lr": OptionSpec(float, 1.0),
    "elastic-momentum": OptionSpec(float, 0.0),
}


def translate_training(command: CommandLine) -> ExperimentDraft:
    """Translate a command of mpi_learn's MPIDriver."""
    draft = ExperimentDraft("Imported from mpi_learn's MPIDriver:")
    set_training(draft, _options(draft, command, "MPIDriver"), command.ranks)
    return draft


def translate_gan_training(command: CommandLine) -> ExperimentDraft:
    """Translate a command of MPIGDriver, which trains the 3-D GAN regardless of its model argument."""
    draft = ExperimentDraft("Imported from MPIGDriver:")
    options = _options(draft, command, "MPIGDriver")
    draft.translate_options(options)
    draft.set("name", named(f"gan-{options['trial-name']}"), "the 3-D GAN and the trial")
    draft.set("model", {"name": GAN.name}, f"the 3-D GAN of MPIGDriver, which ignores {options['model']}")
    set_gan_problem(draft, "MPIGDriver")
    draft.ineffective.append(f"{options.as_written('loss')} (MPIGDriver never reads it)")
    if given := [name for name in ("elastic-lr", "elastic-momentum") if name in options]:
        draft.remarks.append(
            f"{options.as_written(*given)}: read as by mpi_learn's MPIGDriver; NNLO's MPIGDriver never uses them"
        )
    set_data(draft, options, GAN)
    set_training_control(draft, options, command.ranks)
    return draft


def _options(draft: ExperimentDraft, command: CommandLine, program: str) -> ParsedOptions:
    set_resources(draft, command)
    options = ParsedOptions(program, OPTIONS, _renamed(command.words), POSITIONAL)
    # The flag of mpi_learn's MPIGDriver takes precedence over --mode, so it is appended as the last --mode.
    if options["easgd"]:
        options = ParsedOptions(program, OPTIONS, [*_renamed(command.words), "--mode", "easgd"], POSITIONAL)
    return options


def _renamed(words: tuple[str, ...]) -> list[str]:
    """Rename mpi_learn's options to NNLO's names."""
    return [re.sub(r"^--(?=(masters|processes)(=|$))", "--n-", word) for word in words]
