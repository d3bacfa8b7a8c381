"""Reference implementation in numpy of compression with error feedback, following the papers."""

import numpy as np
import torch
from pydantic import TypeAdapter

from helpers.least_squares import DIMENSION
from nnlo_lib.comm.compression.factory import build_compressor
from nnlo_lib.config.compression import CompressionConfig

KEPT = 3


def top_k(v):
    """Keep the KEPT largest values (Aji and Heafield 2017)."""
    sent = v.copy()
    sent[np.argsort(-np.abs(v), kind="stable")[KEPT:]] = 0
    return sent


def sign(v):
    """Return the scaled signs (Karimireddy et al. 2019, algorithm 1)."""
    return np.abs(v).mean() * np.where(v < 0, -1, 1)


def half(v):
    return v.astype(np.float32).astype(np.float16).astype(np.float64)


def brain(v):
    return torch.tensor(v).bfloat16().double().numpy()


SETTINGS = {
    "fp16": {"name": "fp16"},
    "bf16": {"name": "bf16"},
    "top_k": {"name": "top_k", "fraction": KEPT / DIMENSION},
    "random_k": {"name": "random_k", "fraction": KEPT / DIMENSION},
    "qsgd": {"name": "qsgd", "bits": 5, "bucket": 4},
    "sign": {"name": "sign"},
    "powersgd": {"name": "powersgd", "rank": 2},
}
RULES = {"top_k": top_k, "sign": sign, "fp16": half, "bf16": brain}
BYTES = {  # size of a payload of DIMENSION values with 8 bytes each
    "fp16": 2 * DIMENSION, "bf16": 2 * DIMENSION, "top_k": KEPT * (8 + 4), "random_k": 16 + KEPT * 8,
    "qsgd": 2 * 8 + 5, "sign": 8 + 1, "powersgd": 2 * (3 + 3) * 8,
}  # fmt: skip


class Sender:
    """Adds the compression error of a payload to the next one (Seide et al. 2014).

    Kinds without a reference rule in RULES use the compressor of the library.
    """

    def __init__(self, kind, rank):
        self.kind, self.rank, self.e, self.step = kind, rank, np.zeros(DIMENSION), 0
        self.library = build_compressor(TypeAdapter(CompressionConfig).validate_python(SETTINGS[kind]), 0)

    def send(self, v):
        self.e = self.e + v
        sent = RULES.get(self.kind, self.drawn)(self.e)
        self.e, self.step = self.e - sent, self.step + 1
        return sent

    def drawn(self, v):
        sent = torch.empty(DIMENSION, dtype=torch.float64)
        self.library.decode(self.library.encode(torch.tensor(v), self.step, self.rank), sent)
        return sent.numpy()
