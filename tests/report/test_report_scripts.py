"""The two report scripts that the workflow runs."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

MADE = {"experiment.yaml", "summary.csv", "report.html", "allreduce", "downpour"}


def aggregate(script, fake):
    return script("aggregate.py", "--output", fake.root / "summary.csv", *fake.folders)


def report(script, fake):
    files = ("--experiment-file", fake.file, "--summary", fake.root / "summary.csv")
    return script("report.py", "--output", fake.root / "report.html", *files, *fake.folders)


def test_from_job_folders_to_a_page(fake, script):
    fake.quickstart()
    for command in (aggregate, report):
        done = command(script, fake)
        assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in fake.root.iterdir()} == MADE
    assert len((fake.root / "summary.csv").read_text().splitlines()) == 7


def test_mistakes_are_sentences_and_leave_nothing(fake, script):
    (fake.job("allreduce") / "evaluation.json").write_text('{"split": "te')
    for command in (aggregate, report):
        done = command(script, fake)
        assert done.returncode == 2
        assert "evaluation.json is cut short or damaged" in done.stderr
        assert "Traceback" not in done.stderr
    assert {path.name for path in fake.root.iterdir()} == {"experiment.yaml", "allreduce"}


def test_a_failed_report_leaves_the_old_one(fake, script):
    fake.quickstart()
    aggregate(script, fake)
    (fake.root / "report.html").write_text("old")
    fake.file.unlink()
    assert "experiment.yaml" in report(script, fake).stderr
    assert (fake.root / "report.html").read_text() == "old"


def test_the_report_loads_no_training():
    code = "import sys, nnlo_lib.report.page; print([name for name in ('torch', 'mpi4py') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
