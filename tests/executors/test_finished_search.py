"""The command of a finished search changes nothing, and continues a search with more trials."""

import pytest
import yaml
from helpers.nnlo_command import nnlo_process

SETTINGS = {
    "name": "s",
    "model": {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}},
    "train": {"epochs": 1, "batch_size": 64},
    "parallel": {"ranks": 1, "transport": "simulated"},
    "search": {
        "space": {"train.optimizer.lr": [0.01, 0.1]},
        "trials": 1,
        "parallel": 1,
        "method": {"name": "random"},
    },
}


def contents(folder):
    """Return content and modification time of each file."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.processes
def test_a_finished_search_is_not_repeated(tmp_path):
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(SETTINGS))
    first = nnlo_process("search", "s.yaml", folder=tmp_path)
    assert first.returncode == 0, first.stderr
    before = contents(tmp_path / "results")
    again = nnlo_process("search", "s.yaml", folder=tmp_path)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert "already finished: results/s/search" in again.stderr
    assert contents(tmp_path / "results") == before
    more = nnlo_process("search", "s.yaml", "--set", "search.trials=2", folder=tmp_path)
    assert more.returncode == 0, more.stderr
    assert "already finished" not in more.stderr
    assert (tmp_path / "results/s/search/trials/0001.json").exists()
