"""Experiments in the documentation pass `nnlo check`; its commands run and print the output in the pages.

`make outputs` writes the real output into the console blocks of the README, docs/index.md and docs/start, and
NNLO_WRITE_OUTPUT=1 pytest tests/docs/test_blocks.py into those of all pages; what the line `...` hides stays hidden.
"""

import csv
import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers.document_blocks import (
    EXTENSION_PAGES,
    PAGES,
    REPOSITORY,
    SHELL,
    blocks,
    matches,
    renewed,
    write_files,
)
from helpers.nnlo_command import nnlo
from helpers.repository_copy import environment

from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.state.attempts import Attempt

EXPERIMENTS = [
    block for page in PAGES for block in blocks(page) if block.language == "yaml" and not block.is_excluded
]
RUN = [
    page for page in PAGES if any(block.language in SHELL and not block.is_excluded for block in blocks(page))
]
FIRST_PAGES = [
    page for page in RUN if page.parent.name == "start" or page.parent in (REPOSITORY, REPOSITORY / "docs")
]
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


@pytest.mark.parametrize("page", FIRST_PAGES, ids=lambda page: page.stem)
def test_the_first_pages_show_what_check_and_plan_print(page, tmp_path):
    """Without a training: the scripts that write the data, and `nnlo check` and `nnlo plan` in this process."""
    (tmp_path / "config").symlink_to(REPOSITORY / "config")
    write_files(page, tmp_path)
    for block in blocks(page):
        if block.language not in SHELL or block.is_excluded:
            continue
        parts = (
            re.split(r"^\$ ", block.text, flags=re.MULTILINE) if block.language == "console" else [block.text]
        )
        for command, _, shown in (part.partition("\n") for part in parts):
            if re.match(r"python make_\w+\.py", command):
                subprocess.run([sys.executable, *command.split()[1:]], cwd=tmp_path, check=True)
            elif re.match("nnlo (check|plan) ", command):
                done = nnlo(*command.split()[1:], folder=tmp_path)
                assert matches(shown, done.stdout + done.stderr), f"{block}: `make outputs` renews it"


def test_attempts_shown_have_the_fields_of_the_record():
    """The page's commands need a cluster, so that nothing else finds a field that is new or gone."""
    text = (REPOSITORY / "docs/start/cluster.md").read_text()
    shown = [json.loads(line) for line in re.findall(r'^\{"attempt".*$', text, re.MULTILINE)]
    fields = {"from" if field.name == "start" else field.name for field in dataclasses.fields(Attempt)}
    assert [attempt.keys() for attempt in shown] == [fields, fields]


def test_an_output_is_renewed_as_it_is_shortened():
    table = "run  test accuracy  restarts\na   {} %  0\nb      {} %  0\n{}results/m/report.html\n"
    shown = "$ nnlo all m.yaml\n...\n10:00  fetch  1 s\n...\n" + table.format(90, "80 ± 2", "a is better.\n")
    real = "$ nnlo all m.yaml\nUsing x\n\n11:00  fetch  11 min\n11:01  train\n"
    real += table.format(91.5, "91.0 ± 3", "a and b cannot be distinguished;\n2 more seeds are needed.\n")
    assert renewed(shown, real) == (
        "$ nnlo all m.yaml\n...\n11:00  fetch  11 min\n...\n"
        + table.format(91.5, "91.0 ± 3", "a and b cannot be distinguished;\n2 more seeds are needed.\n")
    )
    assert not matches(shown, real.replace("fetch", "get"))
    assert renewed(shown, real.replace("fetch", "get")) == real.replace("fetch", "get")


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(REPOSITORY)))
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
    if page.parent == EXTENSION_PAGES and page.stem in RESULTS:
        RESULTS[page.stem](tmp_path)


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
        text = text[: block.start] + renewed(block.text, output) + text[block.end :]
    page.write_text(text)


def _only(folder: Path, name: str) -> str:
    """Return the text of the only file with this name below results/."""
    (path,) = folder.glob(f"results/*/*/seed-*/{name}")
    return path.read_text()


def _evaluation(folder: Path) -> dict[str, float]:
    return json.loads(_only(folder, "evaluation.json"))


def _algorithm(folder: Path) -> None:
    assert _evaluation(folder)["accuracy"] > 0.5, "chance is 0.1"
    assert (folder / "results/majority/MajorityVote").is_dir(), "the run has the name of the class"


def _compressor(folder: Path) -> None:
    assert _evaluation(folder)["loss"] < 2.3, "ln 10 is chance"
    sent = json.loads(_only(folder, "summary.json"))["bytes_sent"]["gradient"]
    steps, ranks, parameters = 3 * 41, 2, 563_722
    assert 0 < sent < 1.1 * steps * ranks * parameters, "a byte per value, where float32 has 4"


def _problem(folder: Path) -> None:
    last = list(csv.DictReader(_only(folder, "history.csv").splitlines()))[-1]
    assert 0.7 < float(last["train_coverage"]) <= 1, "the 0.9 quantile covers about 0.9 of the labels"
    assert {"loss", "coverage"} <= _evaluation(folder).keys()


def _reader(folder: Path) -> None:
    measured = _evaluation(folder)
    assert measured["samples"] == 36, "178 wines, every fifth a test sample"
    assert measured["accuracy"] > 0.8


def _sampler(folder: Path) -> None:
    replay = nnlo("search", "around_best.yaml", "--replay", folder=folder)
    assert replay.returncode == 0, replay.stdout + replay.stderr
    assert len(list((folder / "results/around-best/search/trials").glob("*.json"))) == 5


def _pruner(folder: Path) -> None:
    with (folder / "results/threshold/search/trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert {row["epochs"] for row in rows} == {"1", "3"}, "some trials were pruned, some were not"
    assert min(rows, key=lambda row: float(row["objective"]))["epochs"] == "3"


RESULTS = {
    "algorithm": _algorithm, "compressor": _compressor, "problem": _problem, "reader": _reader, "sampler": _sampler,
    "pruner": _pruner,
}  # fmt: skip
