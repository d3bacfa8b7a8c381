"""Check the names of public classes and numeric constants of nnlo_lib, and the error names in docstrings."""

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from helpers.source_tree import MODULES, PACKAGE, classes, repeated, short, tree

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


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("PATIENCE = 600", True),
        ("LARGEST = 1 << 30  # bytes", True),
        ("REQUEUE_TIMEOUT_S = 600  # seconds", False),
        ("MAX_ATTEMPTS = 3", False),
        ('FILE = "a"  # bytes', False),
    ],
)
def test_a_constant_without_its_unit_is_found(line, fails):
    assert bool(list(_without_unit(line))) == fails
