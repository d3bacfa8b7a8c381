"""Approximation of a vector by fewer numbers: sparsification, `top_k` and `random_k`, and low rank, `powersgd`."""

from abc import abstractmethod
from math import ceil, isqrt

import torch
from torch import Tensor

from nnlo_lib.comm.compression.base import Compressor, concat_bytes, generator

HEADER_BYTES = 16  # of RandomK: rank and step


class Sparse(Compressor):
    """C(v) = v at k indices, zero elsewhere; k = fraction P, rounded, at least 1. delta = k / P.

    Stich, Cordonnier and Jaggi, Sparsified SGD with memory, 2018, definition 2.1.
    """

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def kept(self, vector: Tensor) -> int:
        """Return k, the number of values that are kept."""
        return max(1, round(self._fraction * vector.numel()))

    @abstractmethod
    def read(self, payload: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k indices and the k values that `payload` holds."""

    def decode(self, payload: Tensor, vector: Tensor) -> None:
        places, values = self.read(payload, vector)
        vector.zero_()[places] = values


class TopK(Sparse):
    """Keep the k values of largest magnitude.

    Bytes: k values, then k indices of 4 bytes; P < 2^31.
    """

    def size(self, vector: Tensor) -> int:
        return self.kept(vector) * (vector.element_size() + 4)

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        places = vector.abs().topk(self.kept(vector), sorted=False).indices
        # Values before indices, because `concat_bytes` requires the wider type first (float64).
        return concat_bytes(vector[places], places.int())

    def read(self, payload: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
        end = self.kept(vector) * vector.element_size()
        return payload[end:].view(torch.int32).long(), payload[:end].view(vector.dtype)


class RandomK(Sparse):
    """Keep k values, drawn without replacement; the receiver repeats the draw of their indices.

    Not scaled: P / k C(v) is unbiased, but its variance, (P / k - 1) |v|^2, would let a fed-back error grow.
    Bytes: rank and step, 8 bytes each, then k values.
    """

    draws = True

    def __init__(self, fraction: float, seed: int) -> None:
        super().__init__(fraction)
        self._seed = seed

    def size(self, vector: Tensor) -> int:
        return HEADER_BYTES + self.kept(vector) * vector.element_size()

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        # Senders may be at different steps: a receiver learns from the header which draw to repeat.
        header = torch.tensor([rank, step], device=vector.device)
        return concat_bytes(header, vector[self._draw(vector, step, rank)])

    def read(self, payload: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
        rank, step = payload[:HEADER_BYTES].view(torch.int64).tolist()
        return self._draw(vector, step, rank), payload[HEADER_BYTES:].view(vector.dtype)

    def _draw(self, vector: Tensor, step: int, rank: int) -> Tensor:
        order = torch.randperm(vector.numel(), generator=generator(self._seed, step, rank))
        return order[: self.kept(vector)].to(vector.device)


class PowerSGD(Compressor):
    """Project v, as one near-square matrix M (m, n), on `rank` directions, by one step of subspace iteration.

        P <- orthonormal basis of M Q;    Q <- M^T P;    C(M) = P Q^T = P P^T M

    Vogels, Karimireddy and Jaggi, PowerSGD, 2019, algorithm 1, on one worker. Q warm-starts the next step; if
    M Q = 0, Q is drawn again, so that delta > 0. Two differences from the paper: algorithms see no layers, so
    M is v cut into m = ceil(sqrt(P)) rows, the last row padded with zeros; and ranks send their own factors
    instead of all-reducing them, so that a sum over ranks may have a higher rank. Bytes: rank (m + n) values.
    """

    draws = True

    def __init__(self, rank: int, seed: int) -> None:
        self._rank, self._seed = rank, seed
        self._q = torch.empty(0)

    def size(self, vector: Tensor) -> int:
        rows, columns, rank = self._shape(vector)
        return rank * (rows + columns) * vector.element_size()

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        rows, columns, _ = self._shape(vector)
        padded = torch.nn.functional.pad(vector, (0, rows * columns - vector.numel()))
        matrix = padded.view(rows, columns)
        p = torch.linalg.qr(self._image(matrix, step, rank)).Q
        self._q = matrix.T @ p
        return concat_bytes(p, self._q)

    def decode(self, payload: Tensor, vector: Tensor) -> None:
        rows, columns, rank = self._shape(vector)
        factors = payload.view(vector.dtype).view(rows + columns, rank)
        vector.copy_((factors[:rows] @ factors[rows:].T).view(-1)[: vector.numel()])

    def state(self) -> dict[str, Tensor]:
        return {"powersgd.q": self._q}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self._q = tensors["powersgd.q"].clone()

    def _shape(self, vector: Tensor) -> tuple[int, int, int]:
        """Return rows, columns and rank; columns <= rows."""
        rows = isqrt(vector.numel() - 1) + 1
        columns = ceil(vector.numel() / rows)
        return rows, columns, min(self._rank, columns)

    def _image(self, matrix: Tensor, step: int, rank: int) -> Tensor:
        """Return M Q, (m, rank), for the previous step's Q; for a random Q if that is missing or M Q = 0."""
        if self._q.numel() and (image := matrix @ self._q).any():
            return image
        shape = matrix.shape[1], min(self._rank, matrix.shape[1])
        q = torch.randn(shape, generator=generator(self._seed, step, rank), dtype=torch.float64)
        return matrix @ q.to(matrix)
