"""File paths and dotted module names in documents, workflow files and docstrings exist."""

import ast
import functools
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDERS = "nnlo_lib|tests|benchmarks|scripts|workflow|profiles|docs|config|slurm|lsf"
PATH = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w")
DOTTED = re.compile(r"(?<![\w./])nnlo_lib(?:\.\w+)+")
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEXT_SUFFIXES = {".md", ".yaml", ".yml", ".smk", ".toml", ".sh"}


def _tracked() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return [REPOSITORY / name for name in names.splitlines() if (REPOSITORY / name).is_file()]


def _is_text(path: Path) -> bool:
    return path.suffix in TEXT_SUFFIXES or path.name in ("Makefile", "Snakefile", ".importlinter", "run")


FILES = [path for path in _tracked() if _is_text(path) or path.suffix == ".py"]


def _prose(path: Path) -> str:
    """Return the text of a document, or the docstrings and comments of Python code."""
    text = path.read_text()
    return "\n".join(_docstrings_and_comments(text)) if path.suffix == ".py" else text


def _docstrings_and_comments(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@functools.cache
def _is_defined(dotted: str) -> bool:
    """Return True if `dotted` is a module or package, or a name that occurs in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        path = REPOSITORY.joinpath(*parts[:length])
        source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
        if source.is_file():
            rest = parts[length:]
            return not rest or bool(re.search(rf"\b{rest[0]}\b", source.read_text()))
    return False


def _missing(path: Path) -> list[str]:
    """Return the paths and names in a file that do not exist; parse Python only if its whole text has some."""
    where = path.relative_to(REPOSITORY)
    return [f"{where}: {name}" for name in _absent(path.read_text()) and _absent(_prose(path))]


def _absent(text: str) -> list[str]:
    paths = [name for name in PATH.findall(text) if not (REPOSITORY / name).exists()]
    return paths + [name for name in DOTTED.findall(text) if not _is_defined(name)]


def test_paths_and_modules_exist():
    assert [each for path in FILES for each in _missing(path)] == []


@functools.cache
def _anchors(page: Path) -> set[str]:
    """Return the anchors that the forge makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _broken_links(page: Path) -> list[str]:
    broken = []
    for target in LINK.findall(page.read_text()):
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if "://" not in target and (not file.exists() or (anchor and anchor not in _anchors(file))):
            broken.append(f"{page.relative_to(REPOSITORY)}: {target}")
    return broken


def test_relative_links_lead_to_a_file_and_a_heading():
    assert [each for page in FILES if page.suffix == ".md" for each in _broken_links(page)] == []
