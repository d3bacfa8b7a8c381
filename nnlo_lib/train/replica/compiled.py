"""Models that torch.compile has turned into faster code."""

import os
import shutil
from importlib.util import find_spec
from typing import cast

import torch
from torch import nn

from nnlo_lib.core.errors import UserError

MAX_COMPILED_SHAPES = 64  # of mini-batches and modes, each with code of its own; torch gives up after 8


def compile_module(module: nn.Module, device: str) -> nn.Module:
    """Return what computes as `module` does, on its parameters and buffers, from code made when first called.

    Each shape of mini-batches has code of its own, whichever comes first: the code, and so the bits, do not depend on
    where a run was resumed. Raises UserError if there is no compiler.
    """
    if device == "cpu" and not cpp_compiler():
        raise UserError(
            "train.compile: torch.compile needs a C++ compiler, but there is no g++ or clang++ (nor what CXX names); "
            "install one, or leave train.compile out"
        )
    if device != "cpu" and not find_spec("triton"):
        raise UserError(
            "train.compile: torch.compile needs the package triton on GPUs; install it, or leave train.compile out"
        )
    torch._dynamo.config.recompile_limit = MAX_COMPILED_SHAPES
    return cast(nn.Module, torch.compile(module, dynamic=False))


def cpp_compiler() -> str | None:
    """Return the path of the C++ compiler that torch would take."""
    named = [os.environ.get("CXX", ""), "g++", "clang++"]
    return next((path for name in named if name and (path := shutil.which(name))), None)
