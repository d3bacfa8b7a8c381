"""Import of user's functions and of implementations by reference, the files they import, and errors with source lines.

The settings of algorithms, compressors, samplers, ... and the list of models refer to their implementations as
`module:name`, or `path.py:name` for an object in a file of the user. So reading an experiment imports no implementation.
"""

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from nnlo_lib.core.errors import HEADLINE_CHARS, without_middle

GET_MODEL = "get_model"  # the function that NNLO calls in a module
# Models are built on the CPU; each rank moves its model to its own device.
KERAS_ENVIRONMENT = {"KERAS_BACKEND": "torch", "KERAS_TORCH_DEVICE": "cpu"}
SHOWN_FRAMES = 4  # frames of the user's files in an error message
# Frames of these folders are not the user's code: installed packages, the standard library and NNLO.
LIBRARY_FOLDERS = {"site-packages", "dist-packages"}
OWN_FOLDERS = (Path(sysconfig.get_path("stdlib")), Path(__file__).parents[1])
_FOLDERS: set[str] = set()  # folders of user's files that were added to sys.path
_MODIFIED_NS: dict[str, int] = {}  # modification time of each user's file when it was last loaded


def load_implementation(reference: str) -> Any:
    """Return the object that `module:name` or `path.py:name` refers to. Errors of a user's file are not caught."""
    module, _, name = reference.rpartition(":")
    if not module.endswith(".py"):
        return getattr(import_module(module), name)
    # The modification times are part of the cache key, so that edited files are loaded again.
    changed = tuple(os.stat(file).st_mtime_ns for file in imported_files(module))
    return getattr(_user_module(module, changed), name)


@cache
def _user_module(path: str, changed: tuple[int, ...]) -> ModuleType:
    """Run the file once as long as it and its imports are unchanged, so that all of its users get the same classes."""
    return load_user_module(path)


def load_user_function(name: str) -> Callable[..., Any]:
    """Run the file and return its function; for `path.py` without a function, return `get_model`.

    Raises AttributeError if the file does not define the function. Errors of the file itself are not caught.
    """
    path, function = split_function_reference(name)
    found: Callable[..., Any] = getattr(load_user_module(path), function)
    return found


def split_function_reference(name: str) -> tuple[str, str]:
    """Return the path and the function of `path.py:function`; the function of `path.py` alone is `get_model`."""
    path, colon, function = name.rpartition(":")
    return (path, function) if colon and path.endswith(".py") else (name, GET_MODEL)


def load_user_module(path: str) -> ModuleType:
    """Run the file and return it as a module; errors of the file are not caught.

    The file can import modules from its folder and from the working directory, in this order. Modules that were
    edited since they were imported are imported again, so that a long session, such as a notebook, runs the
    code in the files. Keras computes with PyTorch, whichever file imports it first.
    """
    select_torch_for_keras()
    folders = [os.path.dirname(os.path.abspath(path)), os.getcwd()]
    _search_first_in(folders)
    _forget_other_modules({os.path.abspath(file) for file in imported_files(path)}, folders)
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def select_torch_for_keras() -> None:
    """Set the variables; Keras reads them when it is imported, which each file of the user may do."""
    os.environ |= KERAS_ENVIRONMENT


def _search_first_in(folders: Sequence[str]) -> None:
    """Search modules in these folders before other folders of the user."""
    _FOLDERS.update(folder for folder in folders if folder not in sys.path)
    # Last, so that a file of the user such as types.py does not replace a module of Python or of NNLO.
    others = [folder for folder in sys.path if folder in _FOLDERS and folder not in folders]
    kept = [folder for folder in sys.path if folder not in _FOLDERS]
    first = [folder for folder in dict.fromkeys(folders) if folder in _FOLDERS]
    sys.path[:] = [*kept, *first, *others]


def _forget_other_modules(files: set[str], folders: Sequence[str]) -> None:
    """Remove imported modules that are not the current content of these files, or that `folders` have themselves."""
    times = {file: os.stat(file).st_mtime_ns for file in files if os.path.isfile(file)}
    edited = any(_MODIFIED_NS.get(file, time) != time for file, time in times.items())
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # All of the files, because they share classes; and modules of other folders with the same name.
        if file and ((edited and file in files) or _is_of_another_folder(name, file, folders)):
            del sys.modules[name]
    importlib.invalidate_caches()
    _MODIFIED_NS.update(times)


def _is_of_another_folder(name: str, file: str, folders: Sequence[str]) -> bool:
    """Return True if a module of the user would be found elsewhere now: by its name, in the first of `folders` that has it.

    The source does not show all modules: a function may import one, by a computed name, when it is called.
    """
    root = str(
        Path(file).parents[
            min(name.count(".") + (Path(file).stem == "__init__"), len(Path(file).parents) - 1)
        ]
    )
    if root not in _FOLDERS and file not in _MODIFIED_NS:
        return False
    top = name.partition(".")[0]
    # Not by Path, which raises PermissionError below a folder of another user.
    found = (os.path.join(each, top) for each in folders)
    places = (os.path.dirname(each) for each in found if os.path.isdir(each) or os.path.isfile(f"{each}.py"))
    return next(places, root) != root


def imported_files(path: str | Path) -> tuple[str, ...]:
    """Return `path` and the files that it imports, directly or not, from its folder or the working directory.

    Imports are found in the source without running it, also those inside functions. Paths below the working
    directory are relative to it. Modules of other folders, such as installed packages, and NNLO itself are not
    included.

    Returns:
        Sorted paths; only `path` if it cannot be read or is not Python.
    """
    found, waiting = {_shown(Path(path))}, [Path(path)]
    while waiting:
        for file in _imports(waiting.pop(), (os.path.dirname(os.path.abspath(path)), os.getcwd())):
            if _shown(file) not in found:
                found.add(_shown(file))
                waiting.append(file)
    return tuple(sorted(found))


def _imports(file: Path, roots: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of the modules that one file imports; absolute imports are searched in `roots`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(alias.name.split("."), roots)
        elif isinstance(node, ast.ImportFrom):
            # One dot is the folder of the file, each further dot the folder above.
            places = (str(file.absolute().parents[node.level - 1]),) if node.level else roots
            module = node.module.split(".") if node.module else []
            for alias in node.names:  # each name can be a module of the package
                yield from _module_files([*module, alias.name], places)


def _module_files(parts: list[str], places: tuple[str, ...] | list[str]) -> Iterator[Path]:
    """Yield the files that `import a.b.c` runs: of the packages a and a.b, and of the module; c may be a name inside it."""
    # In a clone of the repository, the working directory also contains the package of NNLO.
    if not parts or parts[0] in sys.stdlib_module_names or parts[0] == __package__.partition(".")[0]:
        return
    spec = PathFinder.find_spec(parts[0], list(places))
    if spec is None:
        return
    if spec.origin and spec.has_location:
        yield Path(spec.origin)
    if spec.submodule_search_locations is not None:
        yield from _module_files(parts[1:], list(spec.submodule_search_locations))


def error_with_source_line(error: BaseException) -> str:
    """Return an error as `file.py:12 in forward: Type: text`, with the frames of the user's files, last first.

    Frames of NNLO and of libraries are left out. The text ends with the torch layer below the user's code that
    refused its input, and with the notes of the error. A syntax error is `file.py:3: reason: line`.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(error.filename)}:{error.lineno}: {error.msg}: {(error.text or '').strip()}"
    frames = list(_frames(error))
    own = [f"{_shown(frame.file)}:{frame.line} in {frame.function}" for frame in frames if frame.is_user_code]
    where = ", called from ".join(reversed(own[-SHOWN_FRAMES:]))
    text = f"{type(error).__name__}: {without_middle(str(error), HEADLINE_CHARS)}"
    layer = next((found for frame in reversed(frames) if (found := frame.layer)), "")
    return "; ".join(
        [f"{where}: {text}" if where else text, *([layer] if layer else []), *getattr(error, "__notes__", [])]
    )


def is_in_user_code(error: BaseException) -> bool:
    """Return True if the error was raised by a user's file, or below a function of it."""
    return any(frame.is_user_code for frame in _frames(error))


@dataclass(frozen=True)
class _Frame:
    """One frame of a traceback."""

    file: str
    line: int
    function: str
    variables: Mapping[str, Any]

    @property
    def is_user_code(self) -> bool:
        path = Path(self.file)
        return not (
            self.file.startswith("<")
            or LIBRARY_FOLDERS.intersection(path.parts)
            or any(path.is_relative_to(folder) for folder in OWN_FOLDERS)
        )

    @property
    def layer(self) -> str:
        """The library's layer that the frame belongs to, with the shape of its input; empty if it is no layer."""
        layer: Any = self.variables.get("self")
        if self.function != "forward" or self.is_user_code or not hasattr(layer, "extra_repr"):
            return ""
        shape = getattr(self.variables.get("input"), "shape", None)
        got = f" got an input of shape {tuple(shape)}" if shape is not None else ""
        return f"{type(layer).__name__}({layer.extra_repr()}){got}" if got else ""


def _frames(error: BaseException) -> Iterator[_Frame]:
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        yield _Frame(code.co_filename, trace.tb_lineno, code.co_name, trace.tb_frame.f_locals)
        trace = trace.tb_next


def _shown(file: str | Path) -> str:
    """Return a path relative to the working directory if it is inside it."""
    path = Path(os.path.abspath(file))
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
