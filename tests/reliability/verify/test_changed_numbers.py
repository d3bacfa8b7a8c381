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
from helpers.synthetic_search import MadeUp
from helpers.trainings_in_process import write_tables

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.content_checksum import with_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.reliability.verify.experiment_files import check_experiment_file
from nnlo_lib.reliability.verify.verify_runs import verify_runs
from nnlo_lib.search.results.trials_csv import write_table
from nnlo_lib.search.study.storage import load_study
from nnlo_lib.state.jsonl_table import JsonlTable, read_rows

ALLREDUCE, DSGD, DOWNPOUR = (f"results/t/{run}/seed-0" for run in ("allreduce", "dsgd", "downpour"))
# Numbers that no other file holds or determines. Only the checksum in summary.json shows their change: if the
# checksum is changed too, nothing does.
ONLY_BY_CHECKSUM = (
    r"config\.(resources|checkpoint|observe)\.",  # do not affect the result, and are not part of config_hash
    r"legs\.\d+\.step", r"model\.flops\.", r"model\.layers\.", r"seconds_by_rank\.\d+\.", r"bytes_sent\.",
    r"messages_sent\.", r"edges\.", r"histograms\.", r"restarts", r"hardware\.", r"folds",
)  # fmt: skip


def numbers(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each number in a JSON value."""
    if isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from numbers(value, (*path, key))
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield path


def change(content: Any, path: tuple[Any, ...]) -> Any:
    """Return a copy of a JSON value with another number at a path."""
    changed = place = json.loads(json.dumps(content))
    for key in path[:-1]:
        place = place[key]
    number = place[path[-1]]
    place[path[-1]] = number + 1 if isinstance(number, int) else number * 1.01 + 0.001
    return changed


def unnoticed(file: Path, capsys, seal: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> list[str]:
    """Change each number of a JSON file, one at a time; return the paths of the changes that `nnlo verify` accepts.

    Of the numbers under one key of the file, those that `seal` cannot hide are sampled: at most three.
    """
    before = file.read_text()
    content, accepted, tried = json.loads(before), [], {}
    for path in numbers(content):
        tried[path[0]] = tried.get(path[0], 0) + 1
        if seal is dict and tried[path[0]] > 3:
            continue
        file.write_text(json.dumps(seal(change(content, path))))
        # A number that the settings do not allow ends the check with a UserError, which is a notice, too.
        with suppress(UserError):
            if verify_runs([str(file.parent)], False) == 0:
                accepted.append(".".join(map(str, path)))
    file.write_text(before)
    capsys.readouterr()
    return accepted


def test_unchanged_files_are_accepted(copy, capsys):
    status = verify_runs(["results"], True, True)
    said = capsys.readouterr().out
    assert status == 0, said
    assert said.count("the model, evaluated again, gives the same numbers") == 6
    assert "summary.csv: each of 6 rows agrees" in said
    assert "report.html: the page and its 19 input files match" in said


@pytest.mark.parametrize("name", ["summary.json", "evaluation.json"])
def test_the_checksum_shows_each_changed_number(copy, name, capsys):
    assert unnoticed(copy / DSGD / name, capsys) == []


@pytest.mark.parametrize(
    "job", [DSGD, *(pytest.param(job, marks=pytest.mark.exhaustive) for job in (ALLREDUCE, DOWNPOUR))]
)
def test_each_number_of_a_summary_with_a_new_checksum_is_compared(copy, job, verified, capsys):
    file = copy / job / "summary.json"
    accepted = unnoticed(file, capsys, with_checksum)
    left = [key for key in accepted if not any(re.match(pattern, key) for pattern in ONLY_BY_CHECKSUM)]
    # Where nodes keep models of their own, the metrics of their mean follow from an evaluation only, and verify says so.
    assert left == (["final.val_loss", "final.val_accuracy"] if job == DSGD else [])
    before = json.loads(file.read_text())
    for key in left:
        file.write_text(json.dumps(with_checksum(change(before, tuple(key.split("."))))))
        status, found = verified(job)
        assert status == 0
        assert any(
            "do not follow from the metrics of the nodes; add --evaluate" in line for line in found["note"]
        )
        status, found = verified(job, evaluate=True)
        assert status == 1
        assert any(line.startswith(f"summary.json: {key} is") for line in found["FAILED"])


def test_each_number_of_an_evaluation_with_a_new_checksum_is_compared(copy, verified, capsys):
    """Without a new evaluation, only the loss is not determined by another number; with one, all are."""
    file = copy / ALLREDUCE / "evaluation.json"
    assert unnoticed(file, capsys, with_checksum) == ["loss"]
    before = json.loads(file.read_text())
    for key in ("loss", "accuracy"):
        content = before | {key: before[key] * 1.01}
        content.pop("confusion")
        file.write_text(json.dumps(with_checksum(content)))
        assert verified(ALLREDUCE)[0] == 0
        status, found = verified(ALLREDUCE, evaluate=True)
        assert status == 1
        assert any(f"evaluated again, gives other numbers: {key} is" in line for line in found["FAILED"])


def publish(paths: RunPaths, rows, **final) -> None:
    """Write a history, and values of `final`, with all their checksums."""
    table = JsonlTable(paths.state.history)
    table.restore(rows)
    table.publish(paths.history)
    summary = json.loads(paths.summary.read_text())
    summary["final"] |= final
    summary["outputs"][paths.history.name] = file_sha256(paths.history)
    paths.summary.write_text(json.dumps(with_checksum(summary)))


@pytest.mark.parametrize("job", [ALLREDUCE, DSGD])
@pytest.mark.parametrize("key", ["val_loss", "val_accuracy"])
def test_history_and_summary_changed_alike_differ_from_the_model(copy, job, key, verified):
    """The same change in the summary, the tables and their checksums: only the model tells."""
    paths = RunPaths(copy / job)
    rows = read_rows(paths.state.history)
    rows[-1][key] = 0.5 * json.loads(paths.summary.read_text())["final"][key]
    publish(paths, rows, **{key: rows[-1][key]})
    found = verified(job, evaluate=True)[1]["FAILED"]
    assert any(line.startswith(f"summary.json: final.{key} is") for line in found)


def test_a_history_that_does_not_follow_from_the_nodes_is_named(copy, verified):
    paths = RunPaths(copy / DSGD)
    rows = read_rows(paths.state.history)
    rows[0]["val_accuracy_max"] += 0.1
    publish(paths, rows)
    [found] = verified(DSGD)[1]["FAILED"]
    assert re.match("history: val_accuracy_max at step .* but nodes.csv gives", found)


def table_of_runs(folder):
    return folder / "results/t/summary.csv"


def table_of_trials(folder):
    made = MadeUp(folder, folds={"k": 2}).trial().trial()
    write_table(made.folder / "trials.csv", load_study(made.folder))
    return made.folder / "trials.csv"


@pytest.mark.parametrize("written", [table_of_runs, table_of_trials], ids=lambda written: written.__name__)
def test_each_number_of_a_table_is_compared(copy, written):
    path = written(copy)
    assert [finding.status for finding in check_experiment_file(path)] == ["ok"]
    header, *rows = list(csv.reader(path.read_text().splitlines()))
    tried = 0
    for row, column in ((row, column) for row in range(2) for column in range(len(header))):
        if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", rows[row][column]):
            changed = [list(each) for each in rows]
            changed[row][column] = str(float(rows[row][column]) + 1).removesuffix(".0")
            path.write_text("".join(",".join(each) + "\n" for each in [header, *changed]))
            assert "FAILED" in {finding.status for finding in check_experiment_file(path)}, header[column]
            tried += 1
    assert tried >= 10


@pytest.mark.parametrize("table", ["history", "nodes", "validations"])
@pytest.mark.parametrize("where", ["state/{}.jsonl", "{}.csv"])
def test_each_column_of_a_table_of_a_training_is_compared(copy, table, where, capsys):
    path = copy / DSGD / where.format(table)
    text = path.read_text()
    line = text.rindex("\n", 0, -1)  # the last row
    for found in re.finditer(r"\d+\.\d+", text[line:]):
        place = line + found.start()
        path.write_text(f"{text[:place]}7{text[place:]}")
        assert verify_runs([DSGD], False) == 1, found[0]
    capsys.readouterr()


@pytest.mark.parametrize("table", ["attempts", "ledger"])
def test_each_number_of_an_attempt_and_of_an_epoch_of_the_ledger_is_compared(copy, table, capsys):
    """The page shows the attempts and records their checksum; the sample counts follow from the partition."""
    path = copy / ALLREDUCE / f"state/{table}.jsonl"
    lines = path.read_text().splitlines()
    content = json.loads(lines[-1])
    for place in numbers(content):
        path.write_text("\n".join([*lines[:-1], json.dumps(change(content, place))]) + "\n")
        assert verify_runs(["results/t"], False) == 1, place
    capsys.readouterr()


def test_a_page_that_was_edited_or_is_older_than_its_inputs_is_named(copy, verified):
    page, file = copy / "results/t/report.html", copy / ALLREDUCE / "evaluation.json"
    text = page.read_text()
    accuracy = re.search(r"\d+\.\d+ ?%", text.partition('<section id="comparison">')[2])[0]
    page.write_text(text.replace(accuracy, "99.99 %"))
    status, found = verified("results/t")
    assert status == 1
    assert any("report.html was modified" in line for line in found["FAILED"])
    page.write_text(text)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(with_checksum(content | {"loss": content["loss"] + 1})))
    found = verified("results/t")[1]["FAILED"]
    assert any(
        "report.html: allreduce/seed-0/evaluation.json changed after the page was written" in line
        for line in found
    )
    assert any("summary.csv: row 1: loss is" in line for line in found)
    write_tables(copy)
    assert verified("results/t")[0] == 0
    shutil.rmtree(copy / DOWNPOUR)
    found = verified("results/t")[1]["FAILED"]
    assert any("the row of results/t/downpour/seed-0 has no results" in line for line in found)
    assert any(
        "report.html: downpour/seed-0/summary.json was removed after the page was written" in line
        for line in found
    )


DAMAGE = {
    "no model": lambda job: (job / "model.safetensors").unlink(),
    "evaluation": lambda job: (job / "evaluation.json").write_text('{"samples": 355, "confusion": [[1], 2]}'),
    "data": lambda job: next(job.parents[3].glob("data/digits/*/manifest.json")).write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_a_finding_and_no_traceback(job, damage, verified):
    damage(job)
    status, found = verified("results/t", evaluate=True)
    assert status == 1
    assert found["FAILED"]


def test_code_that_the_results_name_is_evaluated_only_if_the_user_trusts_it(copy, job, verified):
    (copy / "evil.py").write_text("open('mark', 'w')")
    content = json.loads((job / "summary.json").read_text())
    content["config"]["model"] = {"name": "evil.py:net"}
    (job / "summary.json").write_text(json.dumps(with_checksum(content)))
    said = "the model was not evaluated again, because that runs evil.py; add --trust"
    assert any(said in line for lines in verified(job, evaluate=True)[1].values() for line in lines)
    assert not (copy / "mark").exists()
    assert not any(
        said in line for lines in verified(job, evaluate=True, trust=True)[1].values() for line in lines
    )
