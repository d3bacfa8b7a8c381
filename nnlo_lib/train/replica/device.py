"""Which device a rank computes on."""

import os
import socket

import torch

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config.parallel import ParallelConfig
from nnlo_lib.core.errors import UserError

GPU_SUBSET = "NNLO_GPUS"  # torch's numbers; torch may have read CUDA_VISIBLE_DEVICES before anybody knew


def select_device(comm: Communicator, parallel: ParallelConfig, is_worker: bool = True) -> str:
    """Return `cpu`, or this rank's GPU among those that its host shows it; all ranks call it.

    The ranks of a host take its GPUs in turn, `ranks_per_gpu` each; simulated ranks all take the first. Raises
    UserError if there are too few.
    """
    if not parallel.gpus_per_rank:
        return "cpu"
    has_gpu = is_worker or parallel.master_gpu
    everyone = comm.gather([socket.gethostname(), has_gpu])
    if not has_gpu:
        return "cpu"
    before = everyone[: comm.rank].count(everyone[comm.rank])
    place = 0 if comm.is_virtual else before // parallel.ranks_per_gpu
    return f"cuda:{_taken(visible_gpus(), place, f'rank {comm.rank} on {everyone[comm.rank][0]}')}"


def _taken(gpus: list[int], place: int, who: str) -> int:
    if len(gpus) == 1:  # a scheduler may show each rank its own GPU only
        return gpus[0]
    if place >= len(gpus):
        raise UserError(
            f"{who} asks for GPU {place}, but {len(gpus)} are visible; let more ranks share one "
            "(parallel.ranks_per_gpu), take more nodes, or compute on processors (parallel.gpus_per_rank: 0)"
        )
    return gpus[place]


def visible_gpus() -> list[int]:
    """Return the GPUs that this process may use, by torch's numbers.

    Of those that CUDA_VISIBLE_DEVICES shows, or, where a scheduler sets no such variable, that Slurm says it gave: all,
    or what a search of several trainings at a time leaves to this one (SHARE).
    """
    visible = _given()
    mine = [int(gpu) for gpu in os.environ.get(GPU_SUBSET, "").split(",") if gpu]
    return [gpu for gpu in visible if gpu in mine] if mine else visible


def _given() -> list[int]:
    visible, environment = list(range(torch.cuda.device_count())), os.environ
    if "CUDA_VISIBLE_DEVICES" in environment:
        return visible
    told = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    named = [int(word) for word in told.split(",") if word.isdigit()]
    if named and len(named) < len(visible):
        return [gpu for gpu in named if gpu in visible]
    return visible[: int(environment.get("SLURM_GPUS_ON_NODE") or len(visible))]


def seed_step(seed: int, device: str) -> None:
    """Seed torch's generator of `device`, from which dropout draws (torch.manual_seed does more, for each step)."""
    if device == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.cuda.manual_seed(seed)
