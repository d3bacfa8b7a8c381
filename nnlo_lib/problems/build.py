"""Build the problem that a run describes."""

from functools import partial

from nnlo_lib.config import Classification, Gan, Regression, Run
from nnlo_lib.config.measures import column
from nnlo_lib.problems.classes import predicted
from nnlo_lib.problems.losses import loss_of, measure_of
from nnlo_lib.problems.outputs import Losses, first, of_output
from nnlo_lib.problems.problem import Problem
from nnlo_lib.problems.supervised import Supervised


def build(run: Run, classes: int) -> Problem:
    """Return what a run learns; classes: outputs of its model. Raises UserError if a user's function cannot be read."""
    if isinstance(run.problem, Gan):
        from nnlo_lib.problems.gan import gan_problem

        return gan_problem(run, run.problem)
    return supervised(run, run.problem)


def supervised(run: Run, problem: Classification | Regression) -> Supervised:
    """Return a problem whose samples have answers."""
    metrics = {column(name): of_output(name, partial(measure_of, problem)) for name in run.metrics}
    losses = Losses(run.loss, run.loss_weights, partial(loss_of, problem))
    if isinstance(problem, Regression):
        return Supervised(losses, metrics)
    return Supervised(
        losses, metrics, lambda outputs: predicted(first(outputs), problem.outputs == "probabilities")
    )
