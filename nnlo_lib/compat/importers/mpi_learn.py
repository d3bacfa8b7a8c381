"""The drivers of mpi_learn: MPIDriver, and MPIGDriver for GANs, which is mpi_learn's and NNLO's."""

import re

from nnlo_lib.compat.importers.command import set_launch_keys
from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.compat.importers.job_text import StartedCommand
from nnlo_lib.compat.importers.nnlo import OPTIONS as NNLO_OPTIONS
from nnlo_lib.compat.importers.nnlo import set_data, set_training, set_training_control
from nnlo_lib.compat.importers.nnlo_networks import GAN, set_gan_problem
from nnlo_lib.compat.importers.options import OptionSpec, ParsedOptions, flag_option

POSITIONAL = ("model", "train_data", "val_data")
TORCH = "nnlo runs all networks with PyTorch"
OPTIONS = {
    **{name: option for name, option in NNLO_OPTIONS.items() if name not in {*POSITIONAL, "backend"}},
    "tf": flag_option(TORCH),
    "torch": flag_option(TORCH),
    "profile": flag_option("nnlo does not support Theano"),
    "trace": flag_option(key="observe.trace"),
    "max-gpus": OptionSpec(int, -1),
    "mode": OptionSpec(default="sgd"),
    "easgd": flag_option(),
    "worker-optimizer": OptionSpec(default="sgd"),
    # Unlike NNLO, mpi_learn passes them to the SGD of the workers.
    "elastic-lr": OptionSpec(float, 1.0),
    "elastic-momentum": OptionSpec(float, 0.0),
}


def translate_training(command: StartedCommand) -> ExperimentDraft:
    """Translate a command of MPIDriver."""
    draft = ExperimentDraft("Imported from mpi_learn's MPIDriver:")
    set_launch_keys(draft, command)
    set_training(draft, _options("MPIDriver", command), command.ranks[0])
    return draft


def translate_gan_training(command: StartedCommand) -> ExperimentDraft:
    """Translate a command of MPIGDriver, which trains the 3-D GAN regardless of its model argument."""
    draft, options = ExperimentDraft("Imported from MPIGDriver:"), _options("MPIGDriver", command)
    set_launch_keys(draft, command)
    draft.translate(options)
    draft.set("name", named(f"gan-{options['trial-name']}"), "the 3-D GAN and the trial")
    draft.set("model", {"name": GAN.name}, f"the 3-D GAN of MPIGDriver, which ignores {options['model']}")
    set_gan_problem(draft, "MPIGDriver")
    draft.note(f"{options.as_written('loss')} (MPIGDriver never reads it)")
    if given := [name for name in ("elastic-lr", "elastic-momentum") if name in options]:
        draft.note(
            f"{options.as_written(*given)}: read as by mpi_learn's MPIGDriver; NNLO's MPIGDriver never uses them"
        )
    set_data(draft, options, GAN)
    set_training_control(draft, options, command.ranks[0])
    return draft


def _options(program: str, command: StartedCommand) -> ParsedOptions:
    # mpi_learn's names of NNLO's --n-masters and --n-processes.
    words = [re.sub(r"^--(?=(masters|processes)(=|$))", "--n-", word) for word in command.options]
    options = ParsedOptions(program, OPTIONS, words, POSITIONAL)
    # The flag of mpi_learn's MPIGDriver takes precedence over --mode, so it is appended as the last --mode.
    if options["easgd"]:
        options = ParsedOptions(program, OPTIONS, [*words, "--mode", "easgd"], POSITIONAL)
    return options
