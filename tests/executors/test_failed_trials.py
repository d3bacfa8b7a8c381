"""The cause of a failed trial is visible in the output of the search, in its table, on its page and in its attempts."""

import csv
import json
import subprocess

import pytest
import yaml
from helpers import fork_server
from helpers.repository_copy import environment

pytestmark = pytest.mark.processes

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(64, 10)

    def forward(self, images):
        scores = self.layer(images.flatten(1))
        if self.kind == 1:
            return self.deeper(30)
        return scores.unsqueeze(1).expand(-1, 3, -1) if self.kind == 2 else scores

    def deeper(self, levels):
        if levels:
            return self.deeper(levels - 1)
        raise RuntimeError(f"the configuration {'of the model and ' * 200}is wrong:\\n  layer three is too wide")


def get_model(kind=0):
    return Net(kind)
"""
SETTINGS = {
    "name": "t",
    "model": {"name": "net.py", "args": {"kind": 0}},
    "train": {"epochs": 1, "batch_size": 256},
    "parallel": {"transport": "simulated"},
    "search": {"trials": 3, "space": {"model.args.kind": [0, 1, 2]}, "method": {"name": "grid"}},
}
CAUSES = {1: "layer three is too wide", 2: "RuntimeError: Expected target size [256, 10], got [256]"}


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """Return the folder and the output of a search of which two trials fail."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "net.py").write_text(NET)
    (folder / "t.yaml").write_text(yaml.safe_dump(SETTINGS))
    command = [str(fork_server.programs() / "nnlo"), "search", "t.yaml"]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "results/t/search", done.stderr


@pytest.mark.parametrize("trial", CAUSES)
def test_the_line_of_a_trial_tells_the_cause(searched, trial):
    _, said = searched
    (line,) = [line for line in said.splitlines() if f"trial {trial} failed" in line]
    assert CAUSES[trial] in line
    assert len(line) < 320


@pytest.mark.parametrize("trial", CAUSES)
def test_the_table_and_the_page_tell_the_cause_in_one_line(searched, trial):
    folder, _ = searched
    with (folder / "trials.csv").open() as file:
        error = list(csv.DictReader(file))[trial]["error"]
    assert CAUSES[trial] in error
    assert "\n" not in error
    assert "Traceback" not in error
    page = (folder / "report.html").read_text()
    assert CAUSES[trial] in page
    assert "Traceback" not in page


@pytest.mark.parametrize("trial", CAUSES)
def test_the_record_of_attempts_tells_the_cause_and_the_log_the_traceback(searched, trial):
    folder, _ = searched
    state = folder / f"trials/{trial:04}/fold-0/state"
    (attempt,) = map(json.loads, (state / "attempts.jsonl").read_text().splitlines())
    assert CAUSES[trial] in attempt["error"]
    assert "Traceback" in (state / "log.txt").read_text()
