"""Sums over ranks of compressed vectors."""

import torch
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback


def compressed_allreduce(
    comm: Communicator, feedback: ErrorFeedback, vector: Tensor, purpose: str = "gradient"
) -> None:
    """Overwrite a vector with the sum over ranks of its decoded payloads; all ranks call it.

    Every rank adds in rank order, in the dtype of `vector`: the same bits on all ranks. Bytes: n - 1
    payloads.

    Args:
        comm: communicator of the ranks.
        feedback: compressor of this rank, with the residual of its earlier vectors.
        vector: this rank's vector, (P,); overwritten with the sum.
        purpose: key of the traffic counters.
    """
    # A rank decodes its own payload, too: all ranks add the same vectors and get the same bits.
    payloads = _exchange_payloads(comm, feedback.encode(vector), purpose)
    total, part = torch.empty_like(vector), torch.empty_like(vector)
    feedback.compressor.decode(payloads[0], total)
    for payload in payloads[1:]:
        feedback.compressor.decode(payload, part)
        total.add_(part)
    # Last, because the payload of a lossless compressor is the memory of `vector` itself.
    vector.copy_(total)


def _exchange_payloads(comm: Communicator, payload: Tensor, purpose: str) -> list[Tensor]:
    """Return the payloads of all ranks in rank order.

    Args:
        comm: communicator of the ranks.
        payload: this rank's payload; its length is the same on all ranks.
        purpose: key of the traffic counters.
    """
    payloads = [torch.empty_like(payload) for _ in range(comm.size)]
    payloads[comm.rank] = payload
    peers = [rank for rank in range(comm.size) if rank != comm.rank]
    comm.exchange(dict.fromkeys(peers, payload), {peer: payloads[peer] for peer in peers}, purpose)
    return payloads
