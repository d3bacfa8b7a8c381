"""Error feedback: the part of a vector that compression lost is sent later."""

import torch
from torch import Tensor

from nnlo_lib.comm.compression.base import Compressor


class ErrorFeedback:
    """Error feedback: add to each vector the error that earlier payloads left.

        e <- e + v;    payload = encode(e);    e <- e - decode(payload)

    Seide et al., 1-bit stochastic gradient descent, 2014; Karimireddy et al. 2019, algorithm 2, e in the
    unit of v. Invariant: the decoded payloads plus `residual`, (P,), add up to the sum of all v. One instance
    serves one vector of one rank; a lossless compressor leaves no residual.
    """

    def __init__(self, compressor: Compressor, rank: int) -> None:
        self.compressor, self._rank = compressor, rank
        self.residual = torch.empty(0)
        self._step = 0

    def encode(self, vector: Tensor) -> Tensor:
        """Return the payload of `vector` (P,) plus the residual; `vector` is not changed."""
        if self.compressor.lossless:
            return self.compressor.encode(vector, 0, self._rank)
        self.residual = self.residual.add_(vector) if self.residual.numel() else vector.clone()
        payload = self.compressor.encode(self.residual, self._step, self._rank)
        # The residual refers to the vector that receivers decode, including the rounding of the payload.
        sent = torch.empty_like(vector)
        self.compressor.decode(payload, sent)
        self.residual.sub_(sent)
        self._step += 1
        return payload

    def state(self) -> dict[str, Tensor]:
        """Return the residual, the steps taken and the compressor's state."""
        if self.compressor.lossless:
            return {}
        own = {"feedback.residual": self.residual, "feedback.step": torch.tensor([self._step])}
        return own | self.compressor.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""
        if self.compressor.lossless:
            return
        self.residual, self._step = tensors["feedback.residual"].clone(), int(tensors["feedback.step"])
        self.compressor.load_state(tensors)
