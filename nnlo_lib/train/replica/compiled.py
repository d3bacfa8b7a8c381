"""Compilation of models with torch.compile."""

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from torch import nn

from nnlo_lib.core.compiler_cache import CACHE_VARIABLE as CACHE_VARIABLE
from nnlo_lib.core.compiler_cache import guard_torch_compiler
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.private_folder import UntrustedPathError, private_folder

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
    guard_torch_compiler()
    import torch._dynamo
    from torch._inductor import config as inductor

    _use_private_cache()
    # torch keeps precompiled headers in its default folder, which another user may have prepared.
    inductor.cpp_cache_precompile_headers = False
    torch._dynamo.config.recompile_limit = MAX_COMPILED_SHAPES
    return cast(nn.Module, torch.compile(module, dynamic=False))


def _use_private_cache() -> None:
    """Set the folder of compiled code, unless the user has set it, to a folder that only this user can open.

    torch's default, `torchinductor_<user>` in $TMPDIR, can be prepared by another user, whose code would run.
    """
    if CACHE_VARIABLE not in os.environ:
        try:
            folder = private_folder(Path(tempfile.gettempdir()))
        except (UntrustedPathError, OSError) as error:
            raise UserError(
                f"train.compile: {error}; or set {CACHE_VARIABLE} to a folder that is yours"
            ) from error
        os.environ[CACHE_VARIABLE] = str(folder / "torchinductor")


def cpp_compiler() -> str | None:
    """Return the path of the C++ compiler that torch would use; None if there is no compiler."""
    named = [os.environ.get("CXX", ""), "g++", "clang++"]
    return next((path for name in named if name and (path := shutil.which(name))), None)
