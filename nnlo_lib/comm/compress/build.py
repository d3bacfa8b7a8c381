"""Build the compressor that an experiment describes."""

import torch

from nnlo_lib import config
from nnlo_lib.comm.compress.cast import Cast
from nnlo_lib.comm.compress.compressor import Compressor
from nnlo_lib.comm.compress.none import Identity
from nnlo_lib.comm.compress.powersgd import PowerSGD
from nnlo_lib.comm.compress.qsgd import QSGD
from nnlo_lib.comm.compress.sign import Sign
from nnlo_lib.comm.compress.sparse import RandomK, TopK


def build(settings: config.Compression, seed: int) -> Compressor:
    """Return a compressor for one vector; vectors that should not share random draws need different seeds."""
    match settings:
        case config.NoCompression():
            return Identity()
        case config.FP16():
            return Cast(torch.float16)
        case config.BF16():
            return Cast(torch.bfloat16)
        case config.TopK():
            return TopK(settings.fraction)
        case config.RandomK():
            return RandomK(settings.fraction, seed)
        case config.QSGD():
            return QSGD(settings.bits, settings.bucket, seed)
        case config.Sign():
            return Sign()
        case config.PowerSGD():
            return PowerSGD(settings.rank, seed)
