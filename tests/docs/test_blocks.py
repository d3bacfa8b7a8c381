"""Experiments in the documentation pass `nnlo check`; its commands run and print the output in the pages.

NNLO_WRITE_OUTPUT=1 pytest tests/docs/test_blocks.py writes the real output into console blocks.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers.document_blocks import EXTENSION_PAGES, PAGES, REPOSITORY, SHELL, blocks, matches, write_files
from helpers.repository_copy import environment

from nnlo_lib.experiment.load import load_experiment

EXPERIMENTS = [
    block for page in PAGES for block in blocks(page) if block.language == "yaml" and not block.is_excluded
]
RUN = [
    page
    for page in PAGES
    if page.parent != EXTENSION_PAGES  # test_extension_pages.py runs these and checks the results
    if any(block.language in SHELL and not block.is_excluded for block in blocks(page))
]
QUICK = ("docs/guides/import.md", "docs/start/cluster.md")
NNLO_MODULE = (
    "def get_train(): return []\nget_val = get_features = get_labels = build = get_model = f = get_train\n"
)


def _parts(text: str) -> list[str]:
    """Return the experiments of a block: one per line if all lines set the same key, else the whole block."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    keys = [line.partition(":")[0] for line in lines]
    return lines if len(lines) > 1 and len(set(keys)) == 1 else [text]


@pytest.mark.parametrize("block", EXPERIMENTS, ids=str)
def test_experiments_are_valid(block, tmp_path, monkeypatch):
    """The settings are checked, but not with their data and models, which a page does not contain."""
    monkeypatch.chdir(tmp_path)
    write_files(block.page, tmp_path)
    for name in re.findall(r"([\w-]+\.py)\b", block.text):
        if not (tmp_path / name).exists():
            (tmp_path / name).write_text(NNLO_MODULE)
    for number, part in enumerate(_parts(block.text)):
        assert yaml.safe_load(part), "an empty block"
        (tmp_path / f"checked-{number}.yaml").write_text(part)
        load_experiment(f"checked-{number}.yaml")


def test_exclusions_have_a_block():
    for page in PAGES:
        comments = re.findall(r"^<!-- not (?:checked|run):.*$", page.read_text(), re.MULTILINE)
        assert len(comments) == sum(block.is_excluded for block in blocks(page)), page


def _marked(page: Path) -> object:
    name = str(page.relative_to(REPOSITORY))
    return pytest.param(page, id=name, marks=() if name in QUICK else pytest.mark.slow)


@pytest.mark.processes
@pytest.mark.mpi
@pytest.mark.parametrize("page", [_marked(page) for page in RUN])
def test_commands_run(page, tmp_path):
    """The blocks of a page run one after the other in one folder with the repository's config/."""
    (tmp_path / "config").symlink_to(REPOSITORY / "config")
    write_files(page, tmp_path)
    real = [
        (block, _run(block, tmp_path))
        for block in blocks(page)
        if block.language in SHELL and not block.is_excluded
    ]
    shown = [(block, output) for block, output in real if block.language == "console"]
    if os.environ.get("NNLO_WRITE_OUTPUT"):
        _rewrite(page, shown)
    else:
        for block, output in shown:
            assert matches(block.text, output), f"{block}: NNLO_WRITE_OUTPUT=1 writes\n{output}"


def _run(block, folder: Path) -> str:
    """Run the commands of a block; return commands and output in the form of a console block."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    output = []
    for command in block.commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=environment() | {"PATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        wanted = 2 if "nnlo: error:" in block.text else 0
        assert done.returncode == wanted, f"{block}: {command}\n{done.stdout}"
        output.append(f"$ {command}\n{done.stdout.replace(f'{folder}/', '')}")
    return "".join(output)


def _rewrite(page: Path, shown) -> None:
    text = page.read_text()
    for block, output in reversed(shown):
        if not matches(block.text, output):
            text = text[: block.start] + output + text[block.end :]
    page.write_text(text)
