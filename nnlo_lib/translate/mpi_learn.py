"""mpi_learn's MPIDriver, and the drivers of GANs, MPIGDriver, of mpi_learn and NNLO."""

import re

from nnlo_lib.translate.command_line import CommandLine
from nnlo_lib.translate.draft import Draft, named
from nnlo_lib.translate.networks import GAN, adversaries
from nnlo_lib.translate.nnlo import conduct, data, machine, trained
from nnlo_lib.translate.nnlo_options import OPTIONS as NNLO
from nnlo_lib.translate.options import Option, Options, flag

POSITIONAL = ("model", "train_data", "val_data")
TORCH = "here all networks are torch's"
OPTIONS = {
    **{name: option for name, option in NNLO.items() if name not in {*POSITIONAL, "backend"}},
    "tf": flag(TORCH),
    "torch": flag(TORCH),
    "profile": flag("Theano is not there any more"),
    "trace": flag(),
    "max-gpus": Option(int, -1),
    "mode": Option(default="sgd"),
    "easgd": flag(),
    "worker-optimizer": Option(default="sgd"),
}


def training(command: CommandLine) -> Draft:
    """Translate mpi_learn's MPIDriver."""
    draft = Draft("mpi_learn's MPIDriver, imported:")
    trained(draft, _options(draft, command, "MPIDriver"), command.ranks)
    return draft


def adversarial(command: CommandLine) -> Draft:
    """Translate an MPIGDriver, which trains the 3-D GAN whatever model it is given."""
    draft = Draft("MPIGDriver, imported:")
    options = _options(draft, command, "MPIGDriver")
    draft.carry(options)
    draft.set("name", named(f"gan-{options['trial-name']}"), "the 3-D GAN and the trial")
    draft.set("model", {"name": GAN.name}, f"MPIGDriver's 3-D GAN; it ignores {options['model']}")
    adversaries(draft, "MPIGDriver")
    draft.idle.append(f"{options.said('loss')} (MPIGDriver never read it)")
    data(draft, options, GAN)
    conduct(draft, options, command.ranks)
    return draft


def _options(draft: Draft, command: CommandLine, program: str) -> Options:
    machine(draft, command)
    options = Options(program, OPTIONS, _renamed(command.words), POSITIONAL)
    if options["easgd"]:
        options = Options(program, OPTIONS, [*_renamed(command.words), "--mode", "easgd"], POSITIONAL)
    return options


def _renamed(words: tuple[str, ...]) -> list[str]:
    """Call options by NNLO's names, which were others in mpi_learn."""
    return [re.sub(r"^--(?=(masters|processes)(=|$))", "--n-", word) for word in words]
