"""Arrays of each validation that `observe` requests: distances of all pairs of nodes, metrics of each sample, and maps."""

import re
from collections.abc import Iterable
from functools import cached_property
from math import ceil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm
from nnlo_lib.algorithms.dsgd import DecentralizedAlgorithm
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.contact_sheet import has_points
from nnlo_lib.data.readers.base import PLAN_SPLIT, Array
from nnlo_lib.data.store.shard import write_shard
from nnlo_lib.data.store.split import Split
from nnlo_lib.problems.base import regularization_loss
from nnlo_lib.problems.supervised import SupervisedProblem
from nnlo_lib.state.finished_run import read_arrays
from nnlo_lib.state.training_records import RunLog
from nnlo_lib.train.evaluation.evaluate import evaluation_batches, output_batches
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.task import Task

Arrays = dict[str, Array]
# Starts of file names; a step follows.
CONSENSUS, SAMPLE_METRICS, MAPS = "consensus", "validation_metrics", "maps"
MAX_ROUNDS = 64  # between two validations, of which places and links are written
MAP_SIDE = 64  # cells of the longer side of a map, if the data set has no plan


class ValidationArrays:
    """Writes the requested arrays of each validation to the folder of the observers, a file for each step.

    A step that is trained again after a restart replaces its file. A file that cannot be written costs its
    arrays, not the training.
    """

    def __init__(self, context: RankContext, algorithm: Algorithm, journal: RunLog) -> None:
        self._context, self._algorithm, self._journal = context, algorithm, journal
        if context.task.run.observe.maps and not has_points(context.data.manifest):
            raise UserError(
                f"observe.maps: the samples of {context.data.manifest.dataset} are not points of a plane; remove it"
            )

    def record(self, step: int) -> None:
        """Measure the replicas at a step of the run, ready for evaluation; all ranks call it."""
        comm, observe = self._context.comm, self._context.task.run.observe
        with comm.outside_of_time():
            if observe.consensus_matrix:
                distances = pairwise_distances(self._algorithm.comm, self._context.replica.theta)
                self._write(CONSENSUS, step, distances)
            if observe.sample_metrics and len(self._context.data.validation_set[1]):
                self._write(SAMPLE_METRICS, step, self._sample_metrics())
            if observe.maps:
                self._write(MAPS, step, self._maps(step))

    def _write(self, name: str, step: int, arrays: Arrays) -> None:
        if self._context.comm.rank:
            return
        try:
            with atomic_write(self._context.task.observe_folder / f"{name}-{step}.npz") as part:
                write_shard(part, "npz", arrays)
        except UserError as error:
            self._journal.warn(str(error))

    def _sample_metrics(self) -> Arrays:
        """Return loss and metrics of each validation sample, (models, samples); one model if replicas are equal."""
        context, comm, problem = self._context, self._context.comm, self._context.problem
        assert isinstance(problem, SupervisedProblem), "the configuration accepts sample_metrics for these"
        split, samples = context.data.validation_set
        module = context.replica.module
        with torch.no_grad():
            parts = [
                problem.values_of_outputs(module(*inputs), labels, regularization_loss(module)).cpu()
                for inputs, labels in evaluation_batches(module, split, samples, context.preprocessor)
            ]
        models = [torch.cat(parts, 1)]
        if self._algorithm.replicas_differ:
            models = [broadcast_copy(comm, models[0], node) for node in range(comm.size)]
        stacked = torch.stack(models).numpy()
        return {name: stacked[:, index] for index, name in enumerate(problem.sample_names)}

    def _maps(self, step: int) -> Arrays:
        """Return the plan, what each model predicts of it, and places and links of the nodes in the rounds since the last one.

        A prediction is one byte, 255 for certainly occupied: files are half as large as with halves, and the report shows
        fewer grays.
        """
        points, plan = self._plane
        module, comm = self._context.replica.module.eval(), self._context.comm
        batches = output_batches(module, self._context.preprocessor, [points])
        outputs = torch.cat([each.cpu() for each in batches])
        models = [outputs.sigmoid().float().mul(255).round().view(plan.shape)]
        if self._algorithm.replicas_differ:
            models = [broadcast_copy(comm, models[0], node) for node in range(comm.size)]
        arrays = {"plan": plan, "map": torch.stack(models).numpy().astype(np.uint8)}
        if not comm.rank and isinstance(self._algorithm, DecentralizedAlgorithm):
            neighbors = self._algorithm.neighbors
            # All since the last validation: at the end of each epoch, robots may be at the same places.
            first = min(self._next_round(step), max(0, neighbors.round - 1))
            rounds = range(first, max(1, neighbors.round))
            rounds = rounds[:: -ceil(len(rounds) / MAX_ROUNDS)][::-1]
            topology, arrays["next_round"] = neighbors.topology, np.array(neighbors.round)
            arrays["links"] = np.stack([topology.at(each).matrix > 0 for each in rounds])
            places = [each for each in map(topology.positions, rounds) if each is not None]
            if len(places) == len(rounds):
                cell = np.ptp(points, axis=0).max() / (max(plan.shape) - 1)
                arrays["positions"] = (np.stack(places) - points[0]) / cell
        return arrays

    def _next_round(self, step: int) -> int:
        """Return the first round after the validation before this one; 0 if its file is missing or damaged."""
        files = _files(self._context.task.observe_folder, MAPS)
        before = max((found for found in files if found < step), default=None)
        try:
            return 0 if before is None else int(read_arrays(files[before]).get("next_round", 0))
        except UserError:  # A damaged file costs some rounds of the film, not the training.
            return 0

    @cached_property
    def _plane(self) -> tuple[Array, Array]:
        """Points of a grid, (cells, 2), and what is there, (rows, columns).

        They are the data set's own plan. Without one, or if its points are no grid, the mean label of the plan or the
        validation samples in each cell; NaN without samples.
        """
        manifest = self._context.data.manifest
        if PLAN_SPLIT in manifest.splits:
            split = Split(manifest, PLAN_SPLIT)
            samples = np.arange(len(split))
        else:
            split, samples = self._context.data.validation_set
        (points,), labels = split.take(samples)[0], split.labels[samples]
        shape = [len(np.unique(points[:, axis])) for axis in (1, 0)]
        if len(points) == np.prod(shape):
            order = np.lexsort(points.T)  # rows, then columns
            return points[order], labels[order].reshape(shape).astype(np.float16)
        low, extent = points.min(0), np.ptp(points, axis=0)
        cell = extent.max() / (MAP_SIDE - 1)
        columns, rows = np.rint(extent / cell).astype(int) + 1
        x, y = np.rint((points - low) / cell).astype(int).T
        counts, sums = (
            np.bincount(y * columns + x, weights, rows * columns) for weights in (None, labels.reshape(-1))
        )
        grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).reshape(-1, 2)
        with np.errstate(invalid="ignore"):
            plan = (sums / counts).reshape(rows, columns).astype(np.float16)
        return (low + grid * cell).astype(points.dtype), plan


def pairwise_distances(comm: Communicator, theta: Tensor) -> Arrays:
    """Return the L2 distances of all pairs of ranks, (ranks, ranks), also after scaling to norm 1; all ranks call it."""
    own = theta.detach().double()
    rows = torch.zeros(2, comm.size, comm.size, dtype=torch.float64)
    for node in range(comm.size):
        other = broadcast_copy(comm, theta.detach(), node).double()
        rows[0, comm.rank, node] = (own - other).norm()
        rows[1, comm.rank, node] = (own / own.norm() - other / other.norm()).norm()
    # Every entry is written by one rank; the others add 0.
    flat = rows.view(-1)
    comm.allreduce(flat, "telemetry")
    distance, normalized = flat.view_as(rows).numpy()
    return {"distance": distance, "normalized": normalized}


def broadcast_copy(comm: Communicator, tensor: Tensor, root: int) -> Tensor:
    """Return the tensor of the rank `root`; all ranks call it, with tensors of the same shape."""
    vector = tensor.flatten().clone()
    comm.broadcast(vector, root, "telemetry")
    return vector.view_as(tensor)


def publish_validation_arrays(task: Task, steps: Iterable[int], samples: Array) -> None:
    """Write the arrays of all validations of a finished run to its folder, named `<array>_<step>`.

    Files of other than the `steps` of its validations belong to an attempt that was taken back.
    """
    paths = task.paths
    outputs = paths.consensus, paths.validation_metrics, paths.maps
    for name, output in zip((CONSENSUS, SAMPLE_METRICS, MAPS), outputs, strict=True):
        # An earlier experiment in this folder may have written it.
        output.unlink(missing_ok=True)
        files = _files(task.observe_folder, name)
        found = {
            f"{array}_{step}": values
            for step in sorted(set(steps) & set(files))
            for array, values in read_arrays(files[step]).items()
        }
        if found:
            with atomic_write(output) as part:
                write_shard(part, "npz", found | ({"samples": samples} if name == SAMPLE_METRICS else {}))


def _files(folder: Path, name: str) -> dict[int, Path]:
    """Return the files of an array by step."""
    files = folder.glob(f"{name}-*.npz")
    return {
        int(match[1]): path for path in files if (match := re.fullmatch(rf"{name}-(\d+)\.npz", path.name))
    }
