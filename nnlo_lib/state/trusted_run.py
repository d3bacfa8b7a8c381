"""Code of the user that the evaluation of a finished run executes, and the user's consent to it."""

from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.state.finished_run import FinishedRun

CODE_SUFFIXES = (".py", ".pt", ".pt2", ".pth", ".torch")


def code_files(run: FinishedRun) -> list[str]:
    """Return the files of the user whose code an evaluation of the run executes."""
    return [path for path in run.config.input_files if Path(path).suffix in CODE_SUFFIXES]


def trusted(run: Run) -> Run:
    """Return the settings of a run that may load its saved network, after the user's consent."""
    return run.model_copy(update={"model": run.model.model_copy(update={"trust": True})})
