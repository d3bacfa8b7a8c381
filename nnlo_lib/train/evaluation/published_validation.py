"""Evaluation of a published model on the validation samples of its training."""

from contextlib import closing

import numpy as np
import torch

from nnlo_lib.config import Run
from nnlo_lib.data.partition.partition_file import load_partition
from nnlo_lib.data.readers import Indices
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.problems.factory import build_problem
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.evaluation.evaluate import READ_AHEAD, evaluation_batches, evaluation_sums, within_memory
from nnlo_lib.train.evaluation.published_model import load_published_model
from nnlo_lib.train.replica.device import evaluation_device


def validate_published_model(finished: FinishedRun, run: Run, data: DataManifest) -> dict[str, float]:
    """Return loss and metrics of a published model on the validation samples, by name; empty without samples.

    Args:
        finished: the finished training.
        run: its configuration.
        data: manifest of its data.

    Raises:
        UserError: if the files do not hold the model or the partition, or if the user's code has changed since the training.
    """
    split, samples = _validation_set(finished, run, data)
    if not len(samples):
        return {}
    module, tensors = load_published_model(run, data, finished.paths.model, evaluation_device(run.parallel))
    problem, ranks = build_problem(run), finished.summary["ranks"]

    def measure(size: int) -> torch.Tensor:
        total = torch.zeros(problem.sums_size, dtype=torch.float64)
        # By the shares of the ranks, because the noise of a GAN is drawn again for each batch.
        for share in (samples[first::ranks] for first in range(ranks)):
            with closing(evaluation_batches(module, split, share, tensors, size, READ_AHEAD)) as batches:
                total += evaluation_sums(module, batches, problem)
        return total

    return problem.means(within_memory(measure))


def _validation_set(finished: FinishedRun, run: Run, data: DataManifest) -> tuple[Split, Indices]:
    # In cross-validation, the fold is the validation set, even if the data set has a validation split.
    if isinstance(run.data.validation, float) or finished.summary.get("fold") is not None:
        return Split(data, "train"), load_partition(finished.paths.partition)[0]
    split = Split(data, run.data.validation)
    return split, np.arange(len(split))
