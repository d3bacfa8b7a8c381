"""`nnlo verify` notices each number that was changed by hand in a table, and damaged files."""

import csv
import json
import re
import shutil

import pytest
from helpers.nnlo_command import nnlo, refused
from helpers.synthetic_search import MadeUp
from helpers.training_here import CASES, write_tables

from nnlo_lib.core.atomic_file import with_checksum
from nnlo_lib.reliability.verify import check_experiment_file, verify_runs
from nnlo_lib.search.best import write_table
from nnlo_lib.search.study.storage import load_study

ALLREDUCE, DOWNPOUR = (f"results/t/{run}/seed-0" for run in ("allreduce", "downpour"))


def test_unchanged_files_are_accepted(copy, capsys):
    status = verify_runs(["results"], True)
    said = capsys.readouterr().out
    assert status == 0, said
    assert said.count("evaluation.json matches its checksums and belongs to model.safetensors") == len(CASES)
    assert f"summary.csv: each of {len(CASES)} rows agrees" in said


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


def test_a_table_that_is_older_than_its_results_is_named(copy, verified):
    file = copy / ALLREDUCE / "evaluation.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(with_checksum(content | {"loss": content["loss"] + 1})))
    status, found = verified("results/t")
    assert status == 1
    assert any("summary.csv: row 1: loss is" in line for line in found["FAILED"])
    write_tables(copy)
    assert verified("results/t")[0] == 0
    shutil.rmtree(copy / DOWNPOUR)
    found = verified("results/t")[1]["FAILED"]
    assert any("the row of results/t/downpour/seed-0 has no results" in line for line in found)


DAMAGE = {
    "no model": lambda job: (job / "model.safetensors").unlink(),
    "evaluation": lambda job: (job / "evaluation.json").write_text('{"samples": 355, "confusion": [[1], 2]}'),
    "data": lambda job: next(job.parents[3].glob("data/digits/*/manifest.json")).write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_a_finding_and_no_traceback(job, damage, verified):
    damage(job)
    status, found = verified("results/t")
    assert status == 1
    assert found["FAILED"]


def test_another_evaluation_is_left_to_its_command(copy):
    assert "to evaluate a model again: nnlo evaluate FOLDER" in refused(
        nnlo("verify", ALLREDUCE, "--evaluate", folder=copy)
    )
