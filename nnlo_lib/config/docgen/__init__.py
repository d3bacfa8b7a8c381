"""Write the files that are generated: JSON schema, reference pages, default file.

They come from the types of the experiment file, from the algorithms' docstrings and from the command line's parsers.
"""

import argparse
import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.config.docgen.algorithms import algorithms_page
from nnlo_lib.config.docgen.cli_page import cli_page
from nnlo_lib.config.docgen.default_file import default_file
from nnlo_lib.config.docgen.reference_page import reference_page
from nnlo_lib.config.docgen.schema import experiment_schema
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError

ROOT = Path(__file__).parents[3]
SCHEMA_FILE, REFERENCE_PAGE_FILE, DEFAULT_EXPERIMENT_FILE = (
    "workflow/schemas/experiment.schema.json",
    "docs/reference/experiment.md",
    "config/config.yaml",
)
ALGORITHMS_PAGE_FILE = "docs/reference/algorithms.md"
CLI_PAGE_FILE = "docs/reference/cli.md"


def write_all(check: bool, parser: argparse.ArgumentParser | None = None) -> int:
    """Write the generated files that are out of step; with `check` only show them, and return 1 if any is.

    Args:
        check: write nothing.
        parser: parser of the command line, for its page; None leaves this page out.
    """
    if not (ROOT / "workflow" / "Snakefile").is_file():
        raise UserError(f"nnlo docs writes files of the repository, and {ROOT} is not a checkout of it")
    texts = {
        SCHEMA_FILE: json.dumps(experiment_schema(), indent=1) + "\n", DEFAULT_EXPERIMENT_FILE: default_file(),
        REFERENCE_PAGE_FILE: reference_page(_there(REFERENCE_PAGE_FILE)), ALGORITHMS_PAGE_FILE: algorithms_page(_there(ALGORITHMS_PAGE_FILE)),
    }  # fmt: skip
    if parser:
        texts[CLI_PAGE_FILE] = cli_page(_there(CLI_PAGE_FILE), parser)
    stale = {path: text for path, text in texts.items() if text != _there(path)}
    for path, text in stale.items():
        if check:
            sys.stdout.writelines(_difference(path, text))
        else:
            _write(path, text)
    return int(check and bool(stale))


def _write(path: str, text: str) -> None:
    with atomic_write(ROOT / path) as part:
        part.write_text(text, encoding="utf-8")
    print(f"wrote {path}")


def _there(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""


def _difference(path: str, text: str) -> Iterator[str]:
    old, new = _there(path).splitlines(True), text.splitlines(True)
    return difflib.unified_diff(old, new, path, f"{path} as nnlo docs writes it")
