"""PowerSGD: low-rank approximation."""

from math import ceil, isqrt
from typing import Any, Self

import torch
from torch import Tensor

from nnlo_lib.comm.compression.base import Compressor, generator
from nnlo_lib.comm.compression.bit_packing import concat_bytes


class PowerSGD(Compressor):
    """Project v, as one near-square matrix M (m, n), on `rank` directions, by one step of subspace iteration.

        P <- orthonormal basis of M Q;    Q <- M^T P;    C(M) = P Q^T = P P^T M

    Vogels, Karimireddy and Jaggi, PowerSGD, 2019, algorithm 1, on one worker. Q warm-starts the next step; if
    M Q = 0, Q is drawn again, so that delta > 0. Two differences from the paper: algorithms see no layers, so
    M is v cut into m = ceil(sqrt(P)) rows, the last row padded with zeros; and ranks send their own factors
    instead of all-reducing them, so that a sum over ranks may have a higher rank. Bytes: rank (m + n) values.
    """

    def __init__(self, rank: int, seed: int) -> None:
        self._rank, self._seed = rank, seed
        self._q = torch.empty(0)

    @classmethod
    def from_config(cls, config: Any, seed: int) -> Self:
        """Return a compressor that draws from `seed`."""
        return cls(**config.arguments, seed=seed)

    def size(self, vector: Tensor) -> int:
        rows, columns, rank = self._shape(vector)
        return rank * (rows + columns) * vector.element_size()

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        matrix = _padded(vector, *self._shape(vector)[:2])
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
        """Return M Q, (m, rank), for the previous step's Q; for a random Q if that is missing or M Q = 0.

        Args:
            matrix: M, (m, n).
            step: step or round of the sender; selects the stream of random draws, with `rank`.
            rank: rank that encodes the vector.
        """
        if self._q.numel() and (image := matrix @ self._q).any():
            return image
        shape = matrix.shape[1], min(self._rank, matrix.shape[1])
        q = torch.randn(shape, generator=generator(self._seed, step, rank), dtype=torch.float64)
        return matrix @ q.to(matrix)


def _padded(vector: Tensor, rows: int, columns: int) -> Tensor:
    return torch.nn.functional.pad(vector, (0, rows * columns - vector.numel())).view(rows, columns)
