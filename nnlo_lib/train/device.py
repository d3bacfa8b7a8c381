"""Which device a rank computes on."""

import socket

import torch

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.errors import UserError


def device_of(comm: Communicator, gpus_per_rank: int) -> str:
    """Return `cpu`, or this rank's GPU among those that its host shows it."""
    if not gpus_per_rank:
        return "cpu"
    hosts = comm.gather(socket.gethostname())
    place, visible = hosts[: comm.rank].count(hosts[comm.rank]), torch.cuda.device_count()
    if place >= visible and visible != 1:  # a scheduler may show each rank its own GPU only
        raise UserError(
            f"rank {comm.rank} on {hosts[comm.rank]} asks for GPU {place}, but {visible} are visible"
        )
    return f"cuda:{place % visible}"


def seed_step(seed: int, device: str) -> None:
    """Seed torch's generator of `device`, from which dropout draws (torch.manual_seed does more, for each step)."""
    if device == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.cuda.manual_seed(seed)
