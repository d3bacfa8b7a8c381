"""Inputs of `nnlo import` as users write them; the expected values are written by hand from the meaning in the old system."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nnlo_lib.compat.importers.translate import import_experiment
from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.automatic_gpus import with_numbers_of_gpus

CORPUS = Path(__file__).parent / "corpus"
OPTIONS = "--model mnist --loss categorical_crossentropy --epochs 3"
# NNLO and mpi_learn used the visible GPUs, unless the command or its environment named others.
USES_VISIBLE_GPUS = re.compile(r"(Training|Optimization|MPI|MPIG)Driver")
# Values of every input that its row does not name, so that no value appears that the input does not state.
COMMON = {
    "ranks_per_gpu": ("parallel.ranks_per_gpu", 1),
    "threads": ("parallel.threads_per_rank", 1), "nodes": ("resources.nodes", 1), "runtime": ("resources.runtime", 60),
    "partition": ("resources.partition", None), "account": ("resources.account", None), "container": ("resources.container", None),
}  # fmt: skip
FIELDS = {
    "input",
    "files",
    "status",
    "says",
    "lost",
    "told",
    "ranks",
    "keys",
    "runs",
    "dimensions",
    "gpus",
    *COMMON,
}


def rows() -> list[Any]:
    """Return all rows of the corpus as test parameters."""
    files = sorted(CORPUS.glob("*.yaml"))
    return [
        pytest.param(row, id=f"{file.stem}-{number}")
        for file in files
        for number, row in enumerate(yaml.safe_load(file.read_text()), start=1)
    ]


def filled(text: str) -> str:
    """Return a text with NNLO's training instead of its placeholders."""
    return text.replace("{nnlo}", f"TrainingDriver {OPTIONS}").replace("{options}", OPTIONS)


def value_at(block: Any, key: str) -> Any:
    """Return the value of a dotted key; keys of a search space contain dots."""
    if key.startswith("search.space."):
        dimension = block.search.space[key.removeprefix("search.space.")].model_dump()
        return {kind: list(values) for kind, values in dimension.items()}
    if key.startswith("runs."):
        _, run, key = key.split(".", 2)
        block = block.variants[run]
    for part in key.split("."):
        block = block[part] if isinstance(block, dict) else getattr(block, part)
    return block


def test_size_of_the_corpus():
    assert len(rows()) >= 200
    assert all(set(row.values[0]) <= FIELDS for row in rows())


@pytest.mark.parametrize("row", rows())
def test_corpus(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in row.get("files", {}).items():
        Path(name).write_text(filled(text))
    if row.get("status") == 2:
        with pytest.raises(UserError) as error:
            import_experiment([filled(row["input"])])
        assert row["says"] in str(error.value)
        return
    imported = import_experiment([filled(row["input"])])
    settings = yaml.safe_load(imported.text)
    default = "auto" if USES_VISIBLE_GPUS.search(filled(str(row))) else 0
    assert settings.get("parallel", {}).get("gpus_per_rank", 0) == row.get("gpus", default)
    experiment = Experiment.model_validate(with_numbers_of_gpus(settings, 1000))
    assert (3 if imported.count_line else 0) == row.get("status", 0), imported.count_line
    missing = [each for each in row.get("lost", []) if each not in imported.count_line]
    assert not missing, imported.count_line
    flat = " ".join(imported.text.replace("#", " ").split())
    assert not [each for each in row.get("told", []) if each not in flat], flat
    check_values(row, experiment)


def check_values(row: dict[str, Any], experiment: Experiment) -> None:
    """Assert the values that a row names, and the defaults of those that it does not name."""
    expected = {key: row.get(name, default) for name, (key, default) in COMMON.items()}
    expected |= {"parallel.ranks": row["ranks"], **row.get("keys", {})}
    found = {key: value_at(experiment, key) for key in expected}
    for key, value in expected.items():
        plain = found[key].model_dump(exclude_unset=True) if hasattr(found[key], "model_dump") else found[key]
        assert (list(plain) if isinstance(plain, tuple) else plain) == value, (key, plain)
    if "runs" in row:
        assert list(experiment.variants) == row["runs"]
    if "dimensions" in row:
        assert len(experiment.search.space) == row["dimensions"]
