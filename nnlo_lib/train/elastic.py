"""Resume with a different number of ranks: combine the states of the old ranks for each new rank."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, Role
from nnlo_lib.algorithms.factory import roles
from nnlo_lib.checkpoint.checkpointer import SavedCheckpoint
from nnlo_lib.checkpoint.rank_file import RankState
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.config.rules.combinations import reason_not_elastic
from nnlo_lib.core.errors import UserError

# Tensors of counts, which must not be averaged: each old rank's counts go to exactly one new rank.
SUMMED_STATE = ("sums", "ledger")


def load_rank_state(saved: SavedCheckpoint, run: Run, comm: Communicator, algorithm: Algorithm) -> RankState:
    """Return the state from which this rank resumes: its own, or a merged one if the number of ranks changed.

    Args:
        saved: checkpoint, written by any number of ranks.
        run: configuration of the run.
        comm: communicator of the ranks that resume.
        algorithm: this rank's instance, which names the tensors to sum.

    Raises:
        UserError: if the run does not support a change of the number of ranks.
    """
    if saved.ranks == comm.size:
        return saved.read_rank_state(comm.rank)
    if reason := reason_not_elastic(run):
        raise UserError(
            f"{saved.folder} was written by {saved.ranks} ranks and cannot resume with {comm.size}: {reason}; "
            f"use {saved.ranks} ranks, or delete {saved.folder.parents[1]} to start again"
        )
    return _merge_rank_states(saved, roles(run, saved.ranks), roles(run, comm.size), comm.rank, algorithm)


def _merge_rank_states(
    saved: SavedCheckpoint, old: Sequence[Role], new: Sequence[Role], rank: int, algorithm: Algorithm
) -> RankState:
    """Return the state of a new rank.

    A worker gets the mean of the old workers' tensors and its share of their counts; a server gets the state
    that the old rank with its number saved. Both get `before`, the mask of samples that any old worker has
    used in this epoch.

    Args:
        saved: checkpoint of the old ranks.
        old: roles of the old ranks.
        new: roles of the new ranks.
        rank: new rank.
        algorithm: instance of the new rank, which names the tensors to sum.
    """
    workers = [number for number, role in enumerate(old) if role == "worker"]
    parts = [saved.read_rank_state(worker) for worker in workers]
    # The sampler skips these samples and divides the rest of the epoch among the new workers.
    used = {"before": torch.stack([part.tensors["ledger"] for part in parts]).amax(0).bool()}
    if new[rank] == "server":
        server = saved.read_rank_state(rank)
        return RankState(server.tensors | used, server.progress)
    place, places = new[:rank].count("worker"), new.count("worker")
    # Round-robin over the old workers; new workers beyond their number start with counts of zero.
    mine = parts[place::places]
    tensors = {
        name: _sum_or_concatenate(tensor, [part.tensors[name] for part in mine])
        if name in (*SUMMED_STATE, *algorithm.summed_state)
        else _mean([part.tensors[name] for part in parts if name in part.tensors])
        for name, tensor in parts[0].tensors.items()
    }
    clocks = [state for part in mine for state in part.progress["stopwatches"]]
    return RankState(tensors | used, parts[0].progress | {"stopwatches": clocks})


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean, computed in float64, so that the mean of equal values is exactly this value."""
    total = torch.stack([tensor.double() for tensor in tensors]).sum(0)
    return (total / len(tensors)).to(tensors[0].dtype)


def _sum_or_concatenate(like: Tensor, mine: Sequence[Tensor]) -> Tensor:
    """Return the sum of counts, or all rows of histograms; zeros or no rows if `mine` is empty."""
    if like.dim() == 2:
        return torch.cat([like[:0], *mine])
    return torch.stack([torch.zeros_like(like), *mine]).sum(0, dtype=like.dtype)
