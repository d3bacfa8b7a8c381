"""Build the problem of a run."""

from nnlo_lib.config import Run
from nnlo_lib.core.lazy_import import load_implementation
from nnlo_lib.problems.base import Problem


def build_problem(run: Run) -> Problem:
    """Return the problem of a run. Raises UserError if a user's function cannot be loaded."""
    kind: type[Problem] = load_implementation(run.problem.reference)
    return kind.from_config(run.problem, run)
