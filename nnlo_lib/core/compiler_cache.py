"""The folder of torch's compiled code, which torch places where other users may have prepared it."""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # read by torch when it compiles
COMPILER = "torch._dynamo"


def guard_torch_compiler() -> None:
    """Let a later import of torch's compiler create no folder `torchinductor_<user>` in $TMPDIR.

    torch imports the compiler for some tensors without data and some optimizers, also if nothing is compiled. The import
    creates this folder, which another user may have prepared, and stores its name in the environment as if the user had
    set it. The import takes over a second, so this function leaves it to the first call that needs the compiler.
    """
    if COMPILER not in sys.modules and not any(isinstance(each, _CompilerFinder) for each in sys.meta_path):
        sys.meta_path.insert(0, _CompilerFinder())


class _CompilerFinder(MetaPathFinder):
    """Finds torch's compiler, and lets `_CompilerLoader` import it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != COMPILER:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _CompilerLoader(name, spec.origin)
        return spec


class _CompilerLoader(SourceFileLoader):
    """Imports torch's compiler with a folder that exists on every machine, so that the import creates no folder."""

    def exec_module(self, module: ModuleType) -> None:
        if CACHE_VARIABLE in os.environ:
            return super().exec_module(module)
        os.environ[CACHE_VARIABLE] = "/"
        try:
            return super().exec_module(module)
        finally:
            del os.environ[CACHE_VARIABLE]
