"""Sums over ranks of compressed vectors."""

import torch
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback


def compressed_allreduce(
    comm: Communicator, feedback: ErrorFeedback, vector: Tensor, purpose: str = "gradient"
) -> None:
    """Overwrite `vector` (P,) with the sum over ranks of the decoded payloads of `vector`.

    Every rank adds in rank order, in the dtype of `vector`: the same bits on all ranks. Bytes: n - 1
    payloads.
    """
    payloads = _exchange_payloads(comm, feedback.encode(vector), purpose)
    total, part = torch.empty_like(vector), torch.empty_like(vector)
    feedback.compressor.decode(payloads[0], total)
    for payload in payloads[1:]:
        feedback.compressor.decode(payload, part)
        total.add_(part)
    vector.copy_(total)


def _exchange_payloads(comm: Communicator, payload: Tensor, purpose: str) -> list[Tensor]:
    """Return the payloads of all ranks in rank order."""
    payloads = [torch.empty_like(payload) for _ in range(comm.size)]
    payloads[comm.rank] = payload
    peers = [rank for rank in range(comm.size) if rank != comm.rank]
    comm.exchange(dict.fromkeys(peers, payload), {peer: payloads[peer] for peer in peers}, purpose)
    return payloads
