"""Files of the user's code: a Python file and the modules of the same project that it imports."""

import ast
import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path


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


def _shown(file: Path) -> str:
    full = Path(os.path.abspath(file))
    return str(full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else full)


def _imports(file: Path, roots: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of the modules that one file imports.

    Args:
        file: Python file.
        roots: folders that absolute imports are searched in.
    """
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
    """Yield the files that `import a.b.c` runs: of the packages a and a.b, and of the module.

    Args:
        parts: names a, b, c; the last may be a name inside the module.
        places: folders that the first name is searched in.
    """
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
