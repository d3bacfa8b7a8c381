"""Compressor, the interface of compression: no compression, error feedback, sums over ranks, and the bytes of payloads."""

from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator, Request
from nnlo_lib.config.compression import BaseCompressionConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.core.user_code import load_implementation

CODES_PER_GROUP = 8  # codes that fill whole bytes


class Compressor(ABC):
    """Encode a contiguous vector v (P,) of float32 or float64 in fewer bytes; C(v) is the decoded vector.

    C(0) = 0, and every C contracts: E|C(v) - v|^2 <= (1 - delta) |v|^2 with a delta > 0. Error feedback (Karimireddy
    et al. 2019, assumption A) and CHOCO-SGD require it. Random compressors are therefore not scaled up to be
    unbiased. One instance serves one vector of one rank, step after step.
    """

    lossless = False  # whether C(v) = v always
    draws = False  # whether the class takes a `seed`, from which it draws

    @classmethod
    def from_config(cls, config: Any, seed: int) -> Self:
        """Return a compressor.

        The settings in `config`, a subclass of BaseCompressionConfig, are the keyword arguments of the class.
        """
        return cls(**config.arguments, **({"seed": seed} if cls.draws else {}))

    @abstractmethod
    def size(self, vector: Tensor) -> int:
        """Return the bytes of the payload of any vector of this length and dtype, equal on all ranks."""

    def payload_buffer(self, vector: Tensor) -> Tensor:
        """Return memory for a payload to decode into `vector`; the memory of `vector` if possible."""
        return torch.empty(self.size(vector), dtype=torch.uint8, device=vector.device)

    @abstractmethod
    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        """Return the payload of a vector, (size,) of uint8; the vector stays unchanged.

        `step`, the step or round of the sender, and its `rank` select the stream of random draws.
        """

    @abstractmethod
    def decode(self, payload: Tensor, vector: Tensor) -> None:
        """Overwrite `vector` (P,) in place with the decoded `payload`, of any rank and step."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""
        return {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""


class Identity(Compressor):
    """C(v) = v. The payload is the memory of the vector itself: send it before the vector changes."""

    lossless = True

    def size(self, vector: Tensor) -> int:
        return vector.nbytes

    def payload_buffer(self, vector: Tensor) -> Tensor:
        return as_bytes(vector)

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        return as_bytes(vector)

    def decode(self, payload: Tensor, vector: Tensor) -> None:
        if payload.data_ptr() != vector.data_ptr():
            vector.copy_(payload.view(vector.dtype))


def build_compressor(config: BaseCompressionConfig, seed: int) -> Compressor:
    """Return a compressor for one vector; vectors that should not share random draws need different seeds."""
    kind: type[Compressor] = load_implementation(config.reference)
    return kind.from_config(config, seed)


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
        if payload.nbytes != self.compressor.size(vector):
            raise UserError(
                f"{type(self.compressor).__name__}.encode returned {payload.nbytes} bytes, but size() is "
                f"{self.compressor.size(vector)} for a vector of {len(vector)}; receivers expect size() bytes"
            )
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


def compressed_allreduce(
    comm: Communicator, feedback: ErrorFeedback, vector: Tensor, purpose: str = "gradient"
) -> None:
    """Overwrite a vector with the sum over ranks of its decoded payloads; all ranks call it.

    Every rank adds in rank order, in the dtype of `vector`: the same bits on all ranks. Bytes: n - 1
    payloads.
    """
    payload = feedback.encode(vector)
    incoming = {rank: torch.empty_like(payload) for rank in range(comm.size) if rank != comm.rank}
    comm.exchange(dict.fromkeys(incoming, payload), incoming, purpose)
    _add_payloads(feedback.compressor, incoming | {comm.rank: payload}, vector)


def compressed_iallreduce(
    comm: Communicator, feedback: ErrorFeedback, vector: Tensor, purpose: str = "gradient"
) -> Request:
    """Start a `compressed_allreduce`, of the same bits and bytes; all ranks wait for several in the same order."""
    payload = feedback.encode(vector)
    incoming = {rank: torch.empty_like(payload) for rank in range(comm.size) if rank != comm.rank}
    for rank in incoming:
        comm.send(payload, rank, purpose=purpose)

    def finish() -> None:
        for rank, place in incoming.items():
            comm.receive(place, rank)
        _add_payloads(feedback.compressor, incoming | {comm.rank: payload}, vector)

    return Request(finish)


def _add_payloads(compressor: Compressor, payloads: dict[int, Tensor], vector: Tensor) -> None:
    # A rank decodes its own payload, too: all ranks add the same vectors and get the same bits.
    first, *others = (payloads[rank] for rank in sorted(payloads))
    total, part = torch.empty_like(vector), torch.empty_like(vector)
    compressor.decode(first, total)
    for payload in others:
        compressor.decode(payload, part)
        total.add_(part)
    # Last, because the payload of a lossless compressor is the memory of `vector` itself.
    vector.copy_(total)


def generator(seed: int, step: int, rank: int) -> torch.Generator:
    """Return the random generator of a compressor's `seed` and a sender; on the CPU, so that all devices draw alike."""
    return torch.Generator().manual_seed(derive_seed(seed, "compression", rank, step))


def packed_size(count: int, bits: int) -> int:
    """Return the bytes of `count` codes of `bits` bits each."""
    return -(-count // CODES_PER_GROUP) * bits


def pack(codes: Tensor, bits: int) -> Tensor:
    """Write codes (P,) of uint8, each below 2^bits, into (packed_size,) of uint8, the lowest bits first."""
    groups = torch.nn.functional.pad(codes, (0, -codes.numel() % CODES_PER_GROUP)).view(-1, CODES_PER_GROUP)
    words = torch.zeros(len(groups), dtype=torch.int64, device=codes.device)
    for place in range(CODES_PER_GROUP):
        words |= groups[:, place].long() << (bits * place)
    # Eight codes of b <= 8 bits fill the lowest b bytes of a word, which come first on little-endian hosts.
    return words.view(torch.uint8).view(-1, 8)[:, :bits].reshape(-1)


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """Return the codes that `pack` wrote, (count,) of uint8."""
    words = torch.zeros((packed.numel() // bits, 8), dtype=torch.uint8, device=packed.device)
    words[:, :bits] = packed.view(-1, bits)
    groups = words.view(torch.int64)
    # Also removes the copies of the sign bit that a shift of a negative int64 word brings in.
    mask = (1 << bits) - 1
    codes = [((groups >> (bits * place)) & mask).to(torch.uint8) for place in range(CODES_PER_GROUP)]
    return torch.cat(codes, dim=1).view(-1)[:count]


def as_bytes(values: Tensor) -> Tensor:
    """Return the memory of `values` as uint8; a copy only if it is not contiguous."""
    return values.reshape(-1).view(torch.uint8)


def concat_bytes(*parts: Tensor) -> Tensor:
    """Return the bytes of all parts; each must be a multiple of the next one's width."""
    # Tensor.view(dtype) can decode a part only if it begins at a multiple of the width of its values.
    return torch.cat([as_bytes(part) for part in parts])
