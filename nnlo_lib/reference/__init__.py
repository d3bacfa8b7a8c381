"""Write what is told about the experiment file from its types: JSON schema, reference page, default file."""

import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.data.atomic import replacing
from nnlo_lib.errors import UserError
from nnlo_lib.reference.algorithms import algorithms_page
from nnlo_lib.reference.default_file import default_file
from nnlo_lib.reference.page import page
from nnlo_lib.reference.schema import schema

ROOT = Path(__file__).parents[2]
SCHEMA, PAGE, DEFAULT = "workflow/schemas/experiment.schema.json", "docs/experiment.md", "config/config.yaml"
ALGORITHMS = "docs/algorithms.md"


def write_all(check: bool) -> int:
    """Write the generated files that are out of step; with `check` only show them, and return 1 if any is."""
    if not (ROOT / "workflow" / "Snakefile").is_file():
        raise UserError(f"nnlo docs writes files of the repository, and {ROOT} is not a checkout of it")
    texts = {
        SCHEMA: json.dumps(schema(), indent=1) + "\n", DEFAULT: default_file(),
        PAGE: page(_there(PAGE)), ALGORITHMS: algorithms_page(_there(ALGORITHMS)),
    }  # fmt: skip
    stale = {path: text for path, text in texts.items() if text != _there(path)}
    for path, text in stale.items():
        if check:
            sys.stdout.writelines(_difference(path, text))
        else:
            _write(path, text)
    return int(check and bool(stale))


def _write(path: str, text: str) -> None:
    with replacing(ROOT / path) as part:
        part.write_text(text, encoding="utf-8")
    print(f"wrote {path}")


def _there(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""


def _difference(path: str, text: str) -> Iterator[str]:
    old, new = _there(path).splitlines(True), text.splitlines(True)
    return difflib.unified_diff(old, new, path, f"{path} as nnlo docs writes it")
