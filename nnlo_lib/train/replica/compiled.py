"""Compilation of models with torch.compile."""

import os
import shutil
from importlib.util import find_spec
from typing import cast

import torch
from torch import nn

from nnlo_lib.core.errors import UserError

# Each combination of a mini-batch shape and a mode is compiled separately; torch's default limit is 8.
MAX_COMPILED_SHAPES = 64


def compile_module(module: nn.Module, device: str) -> nn.Module:
    """Return a compiled version of `module` that shares its parameters and buffers; it compiles when called.

    Each mini-batch shape is compiled separately, in any order, so the code and the bits of the results do not
    depend on the step at which a run was resumed.

    Raises:
        UserError: if the compiler for the device is missing.
    """
    if device == "cpu" and not cpp_compiler():
        raise UserError(
            "train.compile: torch.compile needs a C++ compiler, but none was found (CXX, g++, clang++); "
            "install one, or remove train.compile"
        )
    if device != "cpu" and not find_spec("triton"):
        raise UserError(
            "train.compile: torch.compile needs the package triton on GPUs; install triton, or remove train.compile"
        )
    torch._dynamo.config.recompile_limit = MAX_COMPILED_SHAPES
    return cast(nn.Module, torch.compile(module, dynamic=False))


def cpp_compiler() -> str | None:
    """Return the path of the C++ compiler that torch would use; None if there is no compiler."""
    named = [os.environ.get("CXX", ""), "g++", "clang++"]
    return next((path for name in named if name and (path := shutil.which(name))), None)
