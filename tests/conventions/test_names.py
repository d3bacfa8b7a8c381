"""Check the names of public classes, numeric constants and files in nnlo_lib, and the error names in docstrings."""

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator

from helpers.source_tree import MODULES, PACKAGE, classes, repeated, short, tree

from nnlo_lib.config import paths

NOT_A_BLOCK = {
    "ConfigModel": "the base class",
    "Experiment": "the whole file",
    "Run": "what one run of an experiment is",
    "JobSpec": "the config.json of one job",
}
UNITS = ("S", "SECONDS", "MS", "US", "NS", "MIN", "MINUTES", "HOURS", "BYTES", "KB", "MB", "GB")
SAYS_UNIT = re.compile(r"#\s*((milli|micro|nano)?seconds|minutes|hours|bytes|[KMG]B)\b")
MEASURES = re.compile(r"(TIMEOUT|INTERVAL|PATIENCE|DELAY|PAUSE|GRACE|AGE|CHUNK)$")


def test_public_class_names_are_unique():
    places = defaultdict(list)
    for path in MODULES:
        for node in classes(path):
            places[node.name].append(short(path))
    assert repeated(places) == {}


def test_errors_that_docstrings_name_exist():
    defined = {
        node.name for path in MODULES for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)
    }
    defined |= {name for name in dir(builtins) if name.endswith("Error")}
    missing = [
        f"{short(path)}: {name}"
        for path in MODULES
        for text in _docstrings(tree(path))
        for name in re.findall(r"(?<![.\w])[A-Z]\w*Error\b", text)
        if name not in defined
    ]
    assert missing == []


def _docstrings(module: ast.Module) -> Iterator[str]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return (ast.get_docstring(node) or "" for node in ast.walk(module) if isinstance(node, documented))


def test_settings_classes_end_in_config():
    nodes = [node for path in (PACKAGE / "config").rglob("*.py") for node in classes(path)]
    settings = {"BaseModel", "ConfigModel"}
    # Each pass adds the classes derived from the classes found so far; stop if a pass adds no class.
    for _ in nodes:
        found = {each.name for each in nodes if settings & {_last_word(base) for base in each.bases}}
        if found <= settings:
            break
        settings |= found
    assert [name for name in settings - {"BaseModel", *NOT_A_BLOCK} if not name.endswith("Config")] == []


def _last_word(base: ast.expr) -> str:
    return re.split(r"[.\[]", ast.unparse(base))[-1]


def test_constants_of_seconds_and_bytes_end_in_their_unit():
    unnamed = [f"{short(path)}: {name}" for path in MODULES for name in _without_unit(path.read_text())]
    assert unnamed == []
    code = "PATIENCE = 600\nLARGEST = 1 << 30  # bytes\nWAIT_S = 600  # seconds\nMAX_ATTEMPTS = 3\n"
    assert list(_without_unit(code)) == ["PATIENCE", "LARGEST"]


def _without_unit(code: str) -> Iterator[str]:
    """Yield numeric constants without a unit in their name if their name or comment denotes a time or size."""
    lines = code.splitlines()
    for node in ast.parse(code).body:
        name = _constant(node)
        if name is None or name.rsplit("_", 1)[-1] in UNITS:
            continue
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        if MEASURES.search(name) or SAYS_UNIT.search(text):
            yield name


def _constant(node: ast.stmt) -> str | None:
    """Return the name of a module-level constant with a value computed from numbers, None for other statements."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return None
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, ast.Name) or not target.id.isupper():
        return None
    numeric = ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop
    parts = list(ast.walk(node.value))
    texts = any(isinstance(part, ast.Constant) and not isinstance(part.value, int | float) for part in parts)
    return target.id if all(isinstance(part, numeric) for part in parts) and not texts else None


RUN_PATHS = (paths.RunPaths, paths.StatePaths, paths.SearchPaths, paths.SearchStatePaths)
FILE_NAMES = {
    each.name for kind in RUN_PATHS for each in vars(kind).values() if isinstance(each, paths.PathBelow)
}
FOLDERS = {"results", "state", "search"}
PATH_CALLS = {"Path", "glob", "rglob", "joinpath", "with_name"}


def _spelled_names(module):
    """Yield (line, text) of the literals that contain the name of a run's file.

    A literal is part of a path if it is an operand of `/` or an argument of a path's method; elsewhere, only names with a
    dot count. A literal with a space or `<` is a message, and docstrings and help texts are none.
    """
    nodes, texts, in_paths = list(ast.walk(module)), set(), set()
    for node in nodes:
        if isinstance(node, ast.Expr) or (isinstance(node, ast.keyword) and node.arg == "help"):
            texts.add(id(node.value))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            in_paths |= {id(part) for side in (node.left, node.right) for part in ast.walk(side)}
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if called in PATH_CALLS:
                in_paths |= {id(part) for argument in node.args for part in ast.walk(argument)}
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) and id(node) not in texts else None
        if isinstance(text, str) and " " not in text and "<" not in text:
            is_path = id(node) in in_paths or "/" in text
            known = FILE_NAMES | FOLDERS if is_path else {name for name in FILE_NAMES if "." in name}
            if set(text.split("/")) & known:
                yield node.lineno, text


def test_only_config_paths_spells_names_of_files():
    found = [
        f"{short(path)}:{line}: {text!r}"
        for path in MODULES
        if path != PACKAGE / "config/paths.py"
        for line, text in _spelled_names(tree(path))
    ]
    assert not found, f"ask nnlo_lib.config.paths: {found}"
    assert list(
        _spelled_names(ast.parse('f"{folder}/state/log.txt"; path.glob("x/step"); NAME = "lease.json"'))
    )
