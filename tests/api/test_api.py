"""Public API: lazy imports, complete documentation, and scripts of the guide that print the output on the page."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.document_blocks import blocks, write_files

import nnlo_lib
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = DOCS / "guides/python.md"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def python(code: str, folder: Path) -> str:
    """Run Python code in a folder; return its stdout."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.processes
def test_import_loads_nothing_until_a_name_is_used_and_functions_named_as_subpackages_stay_callable(tmp_path):
    code = """
import sys
before = set(sys.modules)
import nnlo_lib
print(*(set(sys.modules) - before))
first = nnlo_lib.train
import nnlo_lib.train.task, nnlo_lib.search.space.space
assert callable(first) and callable(nnlo_lib.train) and callable(nnlo_lib.search)
"""
    loaded = set(python(code, tmp_path).split())
    # The check of packages that replace those of the environment comes before any import of them.
    allowed = {"nnlo_lib", "nnlo_lib.core", "nnlo_lib.core.shadowed_packages"}
    assert {name for name in loaded if name.startswith("nnlo_lib")} <= allowed
    assert not {"torch", "numpy", "pandas", "pydantic", "yaml"} & loaded


def test_every_name_exists_has_a_type_and_is_in_the_docs():
    page = (DOCS / "reference/python_api.md").read_text()
    assert [
        name for name in nnlo_lib.__all__ if getattr(nnlo_lib, name) is None or f"`{name}" not in page
    ] == []
    (block,) = (
        node for node in ast.parse(Path(nnlo_lib.__file__).read_text()).body if isinstance(node, ast.If)
    )
    typed = {alias.asname or alias.name for node in block.body for alias in node.names}
    assert typed == {*nnlo_lib.__all__, "__version__"}


def test_an_experiment_from_a_file_a_dictionary_and_an_experiment_are_equal(tmp_path):
    (tmp_path / "one.yaml").write_text("name: one\ntrain: {epochs: 2}\nseeds: [3]\n")
    changes = {"train.epochs": 5, "train.batch_size": 8}
    settings = {"name": "one", "train": {"epochs": 2}, "seeds": [3]}
    first = nnlo_lib.load_experiment(tmp_path / "one.yaml", changes)
    assert first == nnlo_lib.load_experiment(settings, changes)
    assert first == nnlo_lib.load_experiment(nnlo_lib.load_experiment(settings), changes)
    assert (first.train.epochs, first.seeds) == (5, (3,))


def test_mistakes_in_a_dictionary_are_named_by_key():
    with pytest.raises(nnlo_lib.UserError, match=r"train\.epoch: unknown key 'epoch'.*'epochs'"):
        nnlo_lib.load_experiment({"train": {"epoch": 2}})
    with pytest.raises(nnlo_lib.UserError, match="has no run 'c'; choose one of: a, b"):
        nnlo_lib.train(nnlo_lib.load_experiment({"runs": {"a": {}, "b": {"train": {"epochs": 1}}}}), run="c")


@pytest.mark.exhaustive
def test_the_script_of_the_guide_prints_what_the_page_shows(tmp_path):
    write_files(GUIDE, tmp_path)
    scripts = [block.title for block in blocks(GUIDE) if block.title]
    shown = [block.text for block in blocks(GUIDE) if block.language == "text"]
    for script, text in zip(scripts, shown, strict=True):
        printed = python(f"exec(open({script!r}).read())", tmp_path)
        words, numbers = zip(*(_words_and_numbers(each) for each in (printed, text)), strict=True)
        assert words[0] == words[1]
        np.testing.assert_allclose(*numbers, atol=0.05, rtol=0.05)
    picture = (tmp_path / "curves.svg").read_text()
    if os.environ.get("NNLO_WRITE_OUTPUT"):
        (DOCS / "images/notebook.svg").write_text(picture)
    # Weights, and so the places of points, may differ in the last digit on other machines.
    shown = re.findall(r"<text[^>]*>([^<]+)", (DOCS / "images/notebook.svg").read_text())
    assert re.findall(r"<text[^>]*>([^<]+)", picture) == shown
    # The accuracy of predict() on the test split equals the published accuracy of the model.
    run = nnlo_lib.load_run(tmp_path / "results/tutorial/allreduce/seed-0")
    (manifest,) = tmp_path.glob("data/digits/*/manifest.json")
    split = Split(DataManifest.load(manifest), "test")
    inputs, labels = split.take(np.arange(len(split)))
    predicted = run.predict(*inputs).argmax(1)
    assert (predicted == labels).mean() == pytest.approx(run.evaluation["accuracy"])
    assert not run.model().training
    message = r"predict: features is float64 \(8, 1, 8, 8\); expected uint8"
    with pytest.raises(nnlo_lib.UserError, match=message):
        run.predict(np.zeros((8, 1, 8, 8)))
    with pytest.raises(nnlo_lib.UserError, match="expected uint8"):
        run.predict(np.zeros((8, 64), np.uint8))


def _words_and_numbers(text: str) -> tuple[list[str], list[float]]:
    """Return the words of a text, and its numbers without core hours."""
    numbers = NUMBER.findall(re.sub(".*core (hours|seconds).*", "", text))
    return NUMBER.sub("#", text).split(), [float(number) for number in numbers]


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(nnlo_lib.UserError, match=r"summary\.json"):
        nnlo_lib.load_run(tmp_path)
