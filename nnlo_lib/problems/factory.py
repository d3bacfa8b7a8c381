"""Build the problem that a run describes."""

from nnlo_lib.config import Run
from nnlo_lib.core.lazy_import import load_implementation
from nnlo_lib.problems.base import Problem


def build_problem(run: Run, classes: int) -> Problem:
    """Return what a run learns; classes: outputs of its model. Raises UserError if a user's function cannot be read."""
    kind: type[Problem] = load_implementation(run.problem.implementation)
    return kind.from_config(run.problem, run)
