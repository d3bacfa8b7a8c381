"""Train one run of an experiment, on MPI ranks or in simulated time."""

from nnlo_lib.api.experiment import chosen_run
from nnlo_lib.api.trained_run import TrainedRun
from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.preflight.preflight import check_experiment
from nnlo_lib.workflow.simulation import simulated
from nnlo_lib.workflow.single_run import train_and_evaluate


def train(
    experiment: Experiment,
    run: str | None = None,
    seed: int | None = None,
    fold: int | None = None,
    launcher: str = "mpiexec",
) -> TrainedRun:
    """Train and evaluate one run, as `nnlo run` does, and return the result.

    An interrupted training resumes from its last checkpoint; a finished one is not repeated. Files are written
    below `data/` and `results/` of the working directory.

    Args:
        experiment: from `load_experiment`.
        run: name of the run; by default the first.
        seed: random seed; by default the first of the experiment.
        fold: fold that is held out; by default 0 if the experiment has folds.
        launcher: command that starts the MPI ranks, which takes `-n N`.

    Raises:
        UserError: if the experiment cannot run or has no run of this name, or if the training fails or is
            interrupted; the message gives the reason.
    """
    check_experiment(experiment)
    seed = experiment.seeds[0] if seed is None else seed
    task, outcome = train_and_evaluate(experiment, chosen_run(experiment, run), seed, fold, launcher)
    if outcome.exit_status:
        raise UserError(outcome.error or f"{task.folder}: the training ended with reason {outcome.reason}")
    return TrainedRun(task.folder)


def simulate(experiment: Experiment, run: str | None = None, seed: int | None = None) -> TrainedRun:
    """Train one run on the virtual machine of `parallel.simulation`, and return the result.

    All ranks run in one process, and the seconds of the result are virtual. Files are written below
    `results/<experiment>-simulated/`.

    Args:
        experiment: from `load_experiment`.
        run: name of the run; by default the first.
        seed: random seed; by default the first of the experiment.

    Raises:
        UserError: if the experiment has no run of this name, or the training fails or is interrupted.
    """
    return train(simulated(experiment), run, seed)
