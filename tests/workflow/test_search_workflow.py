"""A search through the DAG on this machine: its end, its extension and edits, and failed trials.

tests/executors/test_killed_searches.py kills Snakemake.
"""

import json
import re

import pytest
import yaml

pytestmark = pytest.mark.snakemake

SEARCH = {
    "space": {"train.optimizer.lr": {"log_uniform": [1e-3, 1.0]}, "parallel.ranks": [1, 2]},
    "method": {"name": "sobol"},
    "trials": 2,
    "parallel": 2,
    "order": "fixed",
}
ONE_RANK = {"runs": {}, "parallel": {"ranks": 1}}


def settings(name, more=(), **search):
    """Return an experiment with the search in which trials have one rank unless the space says otherwise."""
    return {"name": name, **ONE_RANK, **dict(more), "search": SEARCH | search}


def trials(clone, name):
    """Return the content of all trial files."""
    folder = clone.results(name) / "search/trials"
    return {path.name: path.read_text() for path in sorted(folder.glob("*.json"))}


def results(clone, name):
    """Return (inode, time of modification in ns) of each fold task's result file, to detect replaced files."""
    folder = clone.results(name) / "search/trials"
    files = {str(path.relative_to(folder)): path.stat() for path in folder.glob("*/fold-*/epochs-*.json")}
    return {file: (stat.st_ino, stat.st_mtime_ns) for file, stat in files.items()}


def names(count):
    return {f"{trial:04d}/fold-0/epochs-2.json" for trial in range(count)}


@pytest.fixture(scope="module")
def searched(clone):
    """Return the clone with a search that has ended."""
    clone.run(**settings("tiny"))
    return clone


@pytest.mark.real
def test_a_search_ends_with_its_best_trained_on_all_data(searched):
    assert set(results(searched, "tiny")) == names(2)
    table = searched.table("tiny/search/trials.csv")
    assert [row["status"] for row in table] == ["finished"] * 2
    best = min(table, key=lambda row: float(row["objective"]))
    run = json.loads((searched.results() / "best/config.json").read_text())["run"]
    assert run["train"]["optimizer"]["lr"] == float(best["train.optimizer.lr"])
    assert run["parallel"]["ranks"] == int(best["parallel.ranks"])
    assert [row["run"] for row in searched.table("tiny/summary.csv")] == ["best"]
    assert "<html" in (searched.results() / "report.html").read_text()
    assert "Nothing to be done" in searched.run(**settings("tiny"))


BEST = {"best": 1, "aggregate": 1, "report": 1}
EDITS = {
    "trials lowered": ({"trials": 1}, {}, {"report": 1}),
    "parallel raised": ({"parallel": 4}, {}, {"report": 1}),
    "target": ({"objective": {"target": 0.0}}, {}, {"report": 1}),
    "trials raised": ({"trials": 3}, {}, BEST | {"search": 1, "trials": 1, "choose": 1}),
    "resources": ({}, {"resources": {"runtime": 7}}, {"report": 1}),
    "observe": ({}, {"observe": {"trace": True}}, {"report": 1}),
    "resources and seed": ({}, {"resources": {"runtime": 7}, "seeds": [0, 1]}, BEST),
    "seed added": ({}, {"seeds": [0, 1]}, BEST),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_a_search_that_has_ended_runs_these_jobs(searched, edit):
    search, changes, expected = EDITS[edit]
    said = searched.run("--dry-run", **settings("tiny", changes, **search))
    found = dict(re.findall(r"^(\w+) +(\d+)$", said.partition("Job stats:")[2].partition("\n\n")[0], re.M))
    assert {rule: int(count) for rule, count in found.items() if rule not in ("all", "total")} == expected


@pytest.mark.exhaustive
def test_the_best_gets_edited_resources_and_seeds_and_the_search_more_trials_after_the_end(searched):
    folder = searched.results()
    # A best that ran out of time has published nothing.
    for name in ("summary.json", "evaluation.json"):
        (folder / "best/seed-0" / name).unlink()
    edited = settings("tiny", {"resources": {"runtime": 7}, "seeds": [0, 1]})
    assert searched.run("--printshellcmds", **edited).count("--minutes 7 ") == 2
    assert json.loads((folder / "best/config.json").read_text())["run"]["resources"]["runtime"] == 7
    assert yaml.safe_load((folder / "search/best.yaml").read_text())["seeds"] == [0, 1]
    assert (folder / "best/seed-1/evaluation.json").exists()
    assert "Nothing to be done" in searched.run()

    before, asked = results(searched, "tiny"), trials(searched, "tiny")
    assert searched.run(**settings("tiny", trials=4)).count("(Rule: fold_task)") == 2
    after = results(searched, "tiny")
    assert set(after) == names(4)
    assert {file: after[file] for file in before} == before
    assert {file: trials(searched, "tiny")[file] for file in asked} == asked
    assert len(searched.table("tiny/search/trials.csv")) == 4
    assert "Nothing to be done" in searched.run()


@pytest.mark.exhaustive
def test_a_failing_trial_is_a_result_and_changed_settings_are_refused(clone):
    (clone.folder / "model.py").write_text(
        "from torch import nn\n\n"
        "def build(shape, classes, hidden):\n"
        "    if hidden == 13:\n        raise RuntimeError('an unlucky number')\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    model = {"model": {"name": "model.py:build", "args": {"hidden": 7}}}
    grid = {"method": {"name": "grid"}, "trials": 9}
    fails = settings("fails", model, space={"model.args.hidden": [7, 13]}, **grid)
    assert "search: at most " in clone.run("--dry-run", **fails)
    assert not (clone.results("fails") / "search").exists()
    clone.run("results/fails/best/config.json")
    table = {row["model.args.hidden"]: row for row in clone.table("fails/search/trials.csv")}
    assert (table["7"]["status"], table["13"]["status"]) == ("finished", "failed")
    assert "an unlucky number" in table["13"]["error"]
    said = clone.run(status=2, **settings("fails", model, space={"model.args.hidden": [7, 13, 21]}, **grid))
    assert "the search was started with other settings" in said
