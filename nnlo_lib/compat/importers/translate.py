"""Detection of the system to which a command or file belongs, and its translation."""

import re
from collections.abc import Callable, Sequence
from os.path import isfile  # Path.is_file raises an error if a name is too long
from pathlib import Path

from nnlo_lib.compat.importers import mpi_learn
from nnlo_lib.compat.importers.command import parse_command, set_launch_keys
from nnlo_lib.compat.importers.dinno import translate_study
from nnlo_lib.compat.importers.draft import ExperimentDraft, ImportedExperiment, render_import
from nnlo_lib.compat.importers.job_text import StartedCommand
from nnlo_lib.compat.importers.nnlo import translate_training as nnlo_training
from nnlo_lib.compat.importers.nnlo_search import translate_search
from nnlo_lib.compat.importers.pydtnn import translate_training as pydtnn_training
from nnlo_lib.compat.importers.theano_mpi import (
    is_python_session,
    session_from_cfg,
    session_from_options,
    session_from_python,
    translate_session,
)
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

TRANSLATORS: dict[str, Callable[[StartedCommand], ExperimentDraft]] = {
    "TrainingDriver": nnlo_training,
    "OptimizationDriver": translate_search,
    "MPIGDriver": mpi_learn.translate_gan_training,
    "MPIDriver": mpi_learn.translate_training,
    "benchmarks_CNN": pydtnn_training,
    "pydtnn_benchmark": pydtnn_training,
    "tmlauncher": lambda command: _with_launch(
        translate_session(session_from_options(command.options)), command
    ),
}
SCRIPT_SUFFIXES = (".sh", ".bash", ".zsh", ".slurm", ".sbatch", ".lsf", ".bsub", ".job", ".batch")
DATA_NOTE = "it prepares a data set; set the `data` section instead, and `nnlo data` or the workflow fetches the data set"
NOT_TRAININGS = {
    "GetData": DATA_NOTE, "get_mnist": DATA_NOTE, "get_cifar10": DATA_NOTE, "get_3d": DATA_NOTE, "get_topclass": DATA_NOTE,
    "BuildModel": "it writes the JSON file of a model; set the `model` section instead",
    "git": "it downloads source code", "pip": "it installs packages", "setup": "it installs packages",
    "virtualenv": "it creates a virtual environment",
}  # fmt: skip


def import_experiment(words: Sequence[str]) -> ImportedExperiment:
    """Translate a command (one string, or one string per word), or a file: DiNNO's YAML, a session, a job script."""
    if len(words) == 1 and isfile(words[0]):
        draft, text = _file(Path(words[0])), words[0]
    else:
        command = parse_command(words, _kind_of)
        draft, text = _command(command), command.text
    return render_import(draft, text)


def _kind_of(path: str) -> str:
    """Return training, preparation or an empty string for a program."""
    program = Path(path).name.removesuffix(".py")
    if program in TRANSLATORS or program.startswith("dist_") or is_python_session(Path(path)):
        return "training"
    return "preparation" if program in NOT_TRAININGS else ""


def _file(path: Path) -> ExperimentDraft:
    if path.suffix in (".yaml", ".yml"):
        return translate_study(path)
    if path.suffix == ".cfg":
        return translate_session(session_from_cfg(path))
    if is_python_session(path):
        return translate_session(session_from_python(path))
    if path.suffix in SCRIPT_SUFFIXES or re.match(rb"#![^\r\n]*sh", path.read_bytes()[:64]):
        try:
            return _command(parse_command([path.read_text()], _kind_of))
        except UnicodeDecodeError as error:
            raise UserError(f"cannot read {path}: {error}; pass a text file") from error
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
    raise UserError(
        f"{path}: unknown kind of file; pass a job script (.sh), a DiNNO file (.yaml, .yml) or a Theano-MPI session "
        "(.cfg, or .py with theanompi)"
    )


def _command(command: StartedCommand) -> ExperimentDraft:
    if command.program in TRANSLATORS:
        return TRANSLATORS[command.program](command)
    if command.program in NOT_TRAININGS:
        raise UserError(f"{command.program} is not a training command: {NOT_TRAININGS[command.program]}")
    # DiNNO's scripts, such as dist_mnist_ex.py, take one YAML file.
    if command.program.startswith("dist_") and len(command.options) == 1:
        return _with_launch(translate_study(Path(command.options[0])), command)
    if command.words[0].endswith(".py") and is_python_session(Path(command.words[0])):
        return _with_launch(translate_session(session_from_python(Path(command.words[0]))), command)
    # `import_experiment` has already handled the path of an existing file.
    if Path(command.program).suffix in (".yaml", ".yml", ".cfg", *SCRIPT_SUFFIXES):
        raise UserError(f"file not found: {command.words[0]}; check the path")
    raise UserError(f"unknown program '{command.program}'; {suggest_name(command.program, TRANSLATORS)}")


def _with_launch(draft: ExperimentDraft, command: StartedCommand) -> ExperimentDraft:
    set_launch_keys(draft, command, "session")
    return draft
