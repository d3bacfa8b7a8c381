"""`nnlo search` on this machine: the causes of failed trials, and the command of a search that has finished."""

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
    "search": {"trials": 3, "space": {"model.args.kind": [0, 1, 2, 3]}, "method": {"name": "grid"}},
}
CAUSES = {1: "layer three is too wide", 2: "RuntimeError: Expected target size [256, 10], got [256]"}


def nnlo_search(folder, *options):
    """Run `nnlo search` on processes of the fork server."""
    done = subprocess.run(
        [*fork_server.nnlo(), "search", "t.yaml", *options], cwd=folder, env=environment(),
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """Return the folder and the command of a finished search of which two trials failed."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "net.py").write_text(NET)
    (folder / "t.yaml").write_text(yaml.safe_dump(SETTINGS))
    return folder, nnlo_search(folder)


@pytest.mark.parametrize("trial", CAUSES)
def test_output_table_page_attempts_and_log_name_the_cause_of_a_failed_trial(searched, trial):
    folder, done = searched[0] / "results/t/search", searched[1]
    (line,) = [line for line in done.stderr.splitlines() if f"trial {trial} failed" in line]
    assert CAUSES[trial] in line
    assert len(line) < 320
    with (folder / "trials.csv").open() as file:
        error = list(csv.DictReader(file))[trial]["error"]
    assert CAUSES[trial] in error
    assert "\n" not in error
    assert "Traceback" not in error
    page = (folder / "report.html").read_text()
    assert CAUSES[trial] in page
    assert "Traceback" not in page
    state = folder / f"trials/{trial:04}/fold-0/state"
    (attempt,) = map(json.loads, (state / "attempts.jsonl").read_text().splitlines())
    assert CAUSES[trial] in attempt["error"]
    assert "Traceback" in (state / "log.txt").read_text()


def contents(folder):
    """Return content and modification time of each file."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()
    }


def test_a_finished_search_changes_nothing_and_continues_with_more_trials(searched):
    folder, first = searched
    before = contents(folder / "results")
    again = nnlo_search(folder)
    assert again.stdout == first.stdout
    assert "already finished: results/t/search" in again.stderr
    assert contents(folder / "results") == before
    more = nnlo_search(folder, "--set", "search.trials=4")
    assert "already finished" not in more.stderr
    assert (folder / "results/t/search/trials/0003.json").exists()
