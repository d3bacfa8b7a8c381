"""`nnlo verify` notices each number that was changed by hand in a result file, one at a time."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.nnlo_command import nnlo, nnlo_process

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.content_checksum import with_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.reliability.verify.verify_runs import verify_runs
from nnlo_lib.state.jsonl_table import JsonlTable, read_rows

pytestmark = [pytest.mark.processes, pytest.mark.long]

EXPERIMENT = {
    "name": "t",
    "model": {"name": "simplemlp", "args": {"hidden": 16, "layers": 1}},
    "train": {"epochs": 2, "batch_size": 50, "validate_every": 5},
    "parallel": {"ranks": 3, "transport": "simulated"},
    "runs": {
        "allreduce": {},
        "downpour": {"algorithm": {"name": "downpour"}},
        "dsgd": {"algorithm": {"name": "dsgd"}, "topology": {"name": "cycle"}},
    },
}
SEARCH = {
    "space": {"train.optimizer.lr": {"log_uniform": [0.001, 0.1]}},
    "method": {"name": "sobol"},
    "trials": 2,
    "order": "fixed",
}
JOBS = [f"results/t/{run}/seed-0" for run in EXPERIMENT["runs"]]

# Numbers that no other file holds or determines. Only the checksum in summary.json shows their change: if the
# checksum is changed too, nothing does.
ONLY_BY_CHECKSUM = (
    r"config\.(resources|checkpoint|observe)\.",  # do not affect the result, and are not part of config_hash
    r"legs\.\d+\.step", r"model\.flops\.", r"model\.layers\.", r"seconds_by_rank\.\d+\.", r"bytes_sent\.",
    r"messages_sent\.", r"edges\.", r"histograms\.", r"restarts",
    r"hardware\.", r"folds",
)  # fmt: skip


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    """Return a folder with three trained runs, their summary and page, and a search."""
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "t.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    search = EXPERIMENT | {"name": "s", "runs": {}, "search": SEARCH}
    (folder / "s.yaml").write_text(yaml.safe_dump(search))
    for run in EXPERIMENT["runs"]:
        assert nnlo_process("run", "t.yaml", "--run", run, folder=folder).returncode == 0
    assert nnlo_process("search", "s.yaml", folder=folder).returncode == 0
    write_tables(folder)
    return folder


def write_tables(folder: Path) -> None:
    summary = ("--output", "results/t/summary.csv")
    assert nnlo("task", "aggregate", *summary, *JOBS, folder=folder).returncode in (None, 0)
    files = ("--experiment-file", "t.yaml", "--summary", "results/t/summary.csv")
    page = nnlo("task", "report", "--output", "results/t/report.html", *files, *JOBS, folder=folder)
    assert page.returncode in (None, 0), page.stderr


@pytest.fixture
def copy(workspace, tmp_path, monkeypatch) -> Path:
    """Copy the workspace, in which tests modify files; it is the working directory."""
    shutil.copytree(workspace, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


def numbers(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each number in a JSON value."""
    if isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from numbers(value, (*path, key))
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield path


def change(content: Any, path: tuple[Any, ...]) -> Any:
    """Return a copy of a JSON value with another number at a path."""
    changed = json.loads(json.dumps(content))
    place = changed
    for key in path[:-1]:
        place = place[key]
    number = place[path[-1]]
    place[path[-1]] = number + 1 if isinstance(number, int) else number * 1.01 + 0.001
    return changed


def unnoticed(
    file: Path, verified: str, capsys, seal: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> list[str]:
    """Change each number of a JSON file, one at a time; return the paths of the changes that `nnlo verify` accepts."""
    before = file.read_text()
    content, accepted = json.loads(before), []
    for path in numbers(content):
        file.write_text(json.dumps(seal(change(content, path))))
        # A number that the settings do not allow ends the check with a UserError, which is a notice, too.
        with suppress(UserError):
            if verify_runs([verified], False) == 0:
                accepted.append(".".join(map(str, path)))
    file.write_text(before)
    capsys.readouterr()
    return accepted


def test_unchanged_files_are_accepted(copy, capsys):
    assert verify_runs(["results"], True, True) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert said.count("the model, evaluated again, gives the same numbers") == 3
    assert "summary.csv: each of 3 rows agrees" in said
    assert "trials.csv: each of 2 rows agrees" in said
    assert "report.html: the page and its 10 input files match" in said


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", ["summary.json", "evaluation.json"])
def test_each_number_of_the_results_of_a_training(copy, job, name, capsys):
    assert unnoticed(copy / job / name, job, capsys) == []


@pytest.mark.parametrize("job", JOBS)
def test_each_number_of_a_summary_with_a_new_checksum(copy, job, capsys):
    file = copy / job / "summary.json"
    accepted = unnoticed(file, job, capsys, with_checksum)
    left = [key for key in accepted if not is_listed(key)]
    # Where nodes keep models of their own, the metrics of their mean follow from an evaluation only, and verify says so.
    assert left == (["final.val_loss", "final.val_accuracy"] if "dsgd" in job else [])
    assert [key for key in left if not evaluation_finds(file, key, job, capsys)] == []


def evaluation_finds(file: Path, key: str, job: str, capsys) -> bool:
    """Return True if `nnlo verify --evaluate` finds a changed number with a new checksum, which it names."""
    before = file.read_text()
    file.write_text(json.dumps(with_checksum(change(json.loads(before), tuple(key.split("."))))))
    assert verify_runs([job], False) == 0
    assert "do not follow from the metrics of the nodes; add --evaluate" in capsys.readouterr().out
    status = verify_runs([job], False, evaluate=True)
    file.write_text(before)
    return status == 1 and f"FAILED  summary.json: {key} is" in capsys.readouterr().out


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("key", ["val_loss", "val_accuracy"])
def test_history_and_summary_changed_alike_differ_from_the_model(copy, job, key, capsys):
    # The same change in the summary, the tables and their checksums: only the model tells.
    paths = RunPaths(copy / job)
    summary, rows = json.loads(paths.summary.read_text()), read_rows(paths.state.history)
    summary["final"][key] = rows[-1][key] = 0.5 * summary["final"][key]
    table = JsonlTable(paths.state.history)
    table.restore(rows)
    table.publish(paths.history)
    summary["outputs"][paths.history.name] = file_sha256(paths.history)
    paths.summary.write_text(json.dumps(with_checksum(summary)))
    verify_runs([job], False, evaluate=True)
    assert f"FAILED  summary.json: final.{key} is" in capsys.readouterr().out


def test_a_history_that_does_not_follow_from_the_nodes(copy, capsys):
    paths = RunPaths(copy / JOBS[2])
    rows = read_rows(paths.state.history)
    rows[0]["val_accuracy_max"] += 0.1
    table = JsonlTable(paths.state.history)
    table.restore(rows)
    table.publish(paths.history)
    summary = json.loads(paths.summary.read_text())
    summary["outputs"][paths.history.name] = file_sha256(paths.history)
    paths.summary.write_text(json.dumps(with_checksum(summary)))
    assert verify_runs([JOBS[2]], False) == 1
    said = [line for line in capsys.readouterr().out.splitlines() if "FAILED" in line]
    assert len(said) == 1
    assert re.search("FAILED  history: val_accuracy_max at step .* but nodes.csv gives", said[0]), said


def is_listed(key: str) -> bool:
    return any(re.match(pattern, key) for pattern in ONLY_BY_CHECKSUM)


def test_each_number_of_an_evaluation_with_a_new_checksum(copy, capsys):
    # Without a new evaluation, only the loss is not determined by another number.
    accepted = unnoticed(copy / JOBS[0] / "evaluation.json", JOBS[0], capsys, with_checksum)
    assert accepted == ["loss"]


@pytest.mark.parametrize("key", ["loss", "accuracy"])
def test_the_model_evaluated_again_shows_another_number(copy, key, capsys):
    file = copy / JOBS[0] / "evaluation.json"
    content = json.loads(file.read_text())
    content[key] *= 1.01
    content.pop("confusion")
    file.write_text(json.dumps(with_checksum(content)))
    assert verify_runs([JOBS[0]], False) == 0
    assert verify_runs([JOBS[0]], False, evaluate=True) == 1
    assert f"evaluated again, gives other numbers: {key} is" in capsys.readouterr().out


@pytest.mark.parametrize("table", ["results/t/summary.csv", "results/s/search/trials.csv"])
def test_each_number_of_a_table(copy, table, capsys):
    path = copy / table
    header, *rows = list(csv.reader(path.read_text().splitlines()))
    places = [(row, column) for row in range(len(rows)) for column in range(len(header))]
    tried = [(row, column) for row, column in places if is_number(rows[row][column])]
    assert len(tried) >= 10
    for row, column in tried:
        changed = [list(each) for each in rows]
        changed[row][column] = str(float(rows[row][column]) + 1).removesuffix(".0")
        path.write_text("".join(",".join(each) + "\n" for each in [header, *changed]))
        assert verify_runs([str(path.parent)], False) == 1, header[column]
        assert "FAILED" in capsys.readouterr().out


def is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text))


@pytest.mark.parametrize("table", ["history", "nodes", "validations"])
@pytest.mark.parametrize("where", ["state/{}.jsonl", "{}.csv"])
def test_a_number_of_a_table_of_a_training(copy, table, where, capsys):
    path = copy / "results/t/dsgd/seed-0" / where.format(table)
    text = path.read_text()
    for found in list(re.finditer(r"(?<=[:,] )?\d+\.\d+", text)):
        path.write_text(f"{text[: found.start()]}7{text[found.start() :]}")
        assert verify_runs([str(copy / "results/t/dsgd")], False) == 1, found[0]
    capsys.readouterr()


@pytest.mark.parametrize("table", ["attempts", "ledger"])
def test_a_number_of_a_table_of_attempts_or_samples(copy, table, capsys):
    # The page shows the attempts and records their checksum; the sample counts follow from the partition.
    path = copy / JOBS[0] / f"state/{table}.jsonl"
    lines = path.read_text().splitlines()
    content = json.loads(lines[-1])
    for place in numbers(content):
        path.write_text("\n".join([*lines[:-1], json.dumps(change(content, place))]) + "\n")
        assert verify_runs(["results/t"], False) == 1, place
    capsys.readouterr()


def test_a_number_changed_in_the_page(copy, capsys):
    page = copy / "results/t/report.html"
    text = page.read_text()
    accuracy = re.search(r"\d+\.\d+ ?%", text.partition('<section id="comparison">')[2])[0]
    page.write_text(text.replace(accuracy, "99.99 %"))
    assert verify_runs(["results/t"], False) == 1
    assert "report.html was modified" in capsys.readouterr().out


def test_a_page_that_is_older_than_its_inputs(copy, capsys):
    file = copy / JOBS[0] / "evaluation.json"
    content = json.loads(file.read_text())
    content["loss"] += 1
    file.write_text(json.dumps(with_checksum(content)))
    assert verify_runs(["results/t"], False) == 1
    said = capsys.readouterr().out
    assert "report.html: allreduce/seed-0/evaluation.json changed after the page was written" in said
    assert "summary.csv: row 1: loss is" in said
    write_tables(copy)
    assert verify_runs(["results/t"], False) == 0


@pytest.mark.parametrize("file", [f"{JOBS[0]}/model.safetensors", f"{JOBS[0]}/evaluation.json", "data"])
def test_a_damaged_file_is_a_finding_and_no_traceback(copy, file, capsys):
    if file == "data":
        (manifest,) = copy.glob("data/digits/*/manifest.json")
        manifest.write_text("{}")
    elif file.endswith("json"):
        (copy / file).write_text('{"samples": 355, "confusion": [[1], 2]}')
    else:
        (copy / file).unlink()
    assert verify_runs(["results/t"], False, evaluate=True) == 1
    assert "FAILED" in capsys.readouterr().out


def test_a_row_without_results(copy, capsys):
    shutil.rmtree(copy / JOBS[1])
    assert verify_runs(["results/t"], False) == 1
    said = capsys.readouterr().out
    assert "the row of results/t/downpour/seed-0 has no results" in said
    assert "report.html: downpour/seed-0/summary.json was removed after the page was written" in said


def test_code_that_the_results_name_is_evaluated_only_if_told(copy, capsys):
    (copy / "evil.py").write_text("open('mark', 'w')")
    file = copy / JOBS[0] / "summary.json"
    content = json.loads(file.read_text())
    content["config"]["model"] = {"name": "evil.py:net"}
    file.write_text(json.dumps(with_checksum(content)))
    verify_runs([JOBS[0]], False, evaluate=True)
    told = "the model was not evaluated again, because that runs evil.py; add --trust"
    assert told in capsys.readouterr().out
    assert not (copy / "mark").exists()
    verify_runs([JOBS[0]], False, evaluate=True, trust=True)
    assert told not in capsys.readouterr().out
