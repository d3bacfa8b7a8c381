"""Reference implementation in numpy of compression with error feedback, following the papers."""

import numpy as np
import torch
from pydantic import TypeAdapter

from helpers.least_squares import DIMENSION, SEED, VECTOR
from nnlo_lib.comm.compression.base import build_compressor
from nnlo_lib.config.compression import CompressionConfig

KEPT = 3


def top_k(v):
    """Keep the KEPT largest values (Aji and Heafield 2017)."""
    sent = v.copy()
    sent[np.argsort(-np.abs(v), kind="stable")[KEPT:]] = 0
    return sent


# Kinds of compression: settings, and bytes of a payload of DIMENSION values with 8 bytes each.
KINDS = {
    "none": ({"name": "none"}, VECTOR),
    "fp16": ({"name": "fp16"}, 2 * DIMENSION),
    "bf16": ({"name": "bf16"}, 2 * DIMENSION),
    "top_k": ({"name": "top_k", "fraction": KEPT / DIMENSION}, KEPT * (8 + 4)),
    "random_k": ({"name": "random_k", "fraction": KEPT / DIMENSION}, 16 + KEPT * 8),
    "qsgd": ({"name": "qsgd", "bits": 5, "bucket": 4}, 2 * 8 + 5),
    "sign": ({"name": "sign"}, 8 + 1),
    "powersgd": ({"name": "powersgd", "rank": 2}, 2 * (3 + 3) * 8),
}
SETTINGS = {kind: settings for kind, (settings, _) in KINDS.items()}
BYTES = {kind: size for kind, (_, size) in KINDS.items()}
CASTS = ("none", "fp16", "bf16")
RULES = {
    "none": lambda v: v,
    "fp16": lambda v: v.astype(np.float32).astype(np.float16).astype(np.float64),
    "bf16": lambda v: torch.tensor(v).bfloat16().double().numpy(),
    "top_k": top_k,
    "sign": lambda v: np.abs(v).mean() * np.where(v < 0, -1, 1),  # Karimireddy et al. 2019, algorithm 1
}


class Sender:
    """Adds the compression error of a payload to the next one (Seide et al. 2014).

    Kinds without a reference rule in RULES use the compressor of the library, which test_compression.py compares.
    """

    def __init__(self, kind, rank, size=DIMENSION, seed=SEED):
        self.rule, self.rank, self.e, self.step = RULES.get(kind, self._drawn), rank, np.zeros(size), 0
        self.library = build_compressor(TypeAdapter(CompressionConfig).validate_python(SETTINGS[kind]), seed)

    def send(self, v):
        self.e = self.e + v
        sent = self.rule(self.e)
        self.e, self.step = self.e - sent, self.step + 1
        return sent

    def _drawn(self, v):
        sent = torch.empty(len(v), dtype=torch.float64)
        self.library.decode(self.library.encode(torch.tensor(v), self.step, self.rank), sent)
        return sent.numpy()
