"""Find out whose command it is, and translate it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from nnlo_lib.config import nearest
from nnlo_lib.errors import UserError
from nnlo_lib.translate import dinno, mpi_learn, nnlo, nnlo_search, pydtnn, theano_mpi
from nnlo_lib.translate.command_line import CommandLine, parsed
from nnlo_lib.translate.draft import Draft
from nnlo_lib.translate.page import page
from nnlo_lib.translate.theano_session import from_cfg, from_python, from_words, is_python_session

DRIVERS: dict[str, Callable[[CommandLine], Draft]] = {
    "TrainingDriver": nnlo.training,
    "OptimizationDriver": nnlo_search.optimization,
    "MPIGDriver": mpi_learn.adversarial,
    "MPIDriver": mpi_learn.training,
    "benchmarks_CNN": pydtnn.training,
    "pydtnn_benchmark": pydtnn.training,
    "tmlauncher": lambda command: theano_mpi.session(from_words(command.words)),
}
FETCHED = "it makes data; here `data:` names them, and `nnlo data` or the DAG fetches them"
ASIDE = {
    "GetData": FETCHED, "get_mnist": FETCHED, "get_cifar10": FETCHED, "get_3d": FETCHED, "get_topclass": FETCHED,
    "BuildModel": "it writes a model's JSON; here `model:` names a model",
    "git": "it gets the old code", "pip": "it installs packages", "setup": "it installs packages",
    "virtualenv": "it makes an environment",
}  # fmt: skip


def translate(words: Sequence[str]) -> str:
    """Return the experiment that an old command, or a file, means, as YAML.

    words: a command as one string or word by word, a YAML file of DiNNO's, or a session of Theano-MPI.
    """
    if len(words) == 1 and _is_file(words[0]):
        return page(_file(Path(words[0])), words[0])
    command = parsed(words)
    return page(_command(command), command.text)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # a command may be longer than any name
        return False


def _file(path: Path) -> Draft:
    if path.suffix in (".yaml", ".yml"):
        return dinno.study(path)
    if path.suffix == ".cfg":
        return theano_mpi.session(from_cfg(path))
    if is_python_session(path):
        return theano_mpi.session(from_python(path))
    raise UserError(f"{path} is neither a YAML file of DiNNO's nor a session of Theano-MPI (.cfg, or .py)")


def _command(command: CommandLine) -> Draft:
    if command.program in DRIVERS:
        return DRIVERS[command.program](command)
    if command.program in ASIDE:
        raise UserError(
            f"{command.program} trains nothing, so there is nothing to import: {ASIDE[command.program]}"
        )
    if command.program.startswith("dist_") and len(command.words) == 1:
        return dinno.study(Path(command.words[0]))
    if command.path.endswith(".py") and is_python_session(Path(command.path)):
        return theano_mpi.session(from_python(Path(command.path)))
    if Path(command.program).suffix in (".yaml", ".yml", ".cfg"):
        raise UserError(f"there is no file {command.path}")
    raise UserError(f"'{command.program}' is no launcher that is known; {nearest(command.program, DRIVERS)}")
