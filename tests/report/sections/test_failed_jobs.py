"""The section of failed jobs names each job without results, its reason and the last lines of its log."""

import json

import pytest
from helpers.html_page import HOSTILE, check

from nnlo_lib.report.finished_job import load_jobs
from nnlo_lib.report.page import write_page
from nnlo_lib.report.sections.failed_jobs import LAST_LINES, read_failed_job
from nnlo_lib.report.tables import summarize, write_summary

ATTEMPT = {
    "attempt": 1, "started": "2026-01-02T03:04:00+00:00", "ended": "2026-01-02T03:05:00+00:00", "seconds": 60.0,
    "host": "node0", "job": None, "reason": "diverged", "error": "the loss is nan", "from": 0, "reached": 9, "saved": 6,
    "ranks": 2,
}  # fmt: skip


@pytest.fixture
def place(fake):
    """Return a function that writes a job without results: its attempts, and the lines of its log."""

    def write(job, attempts, lines=()):
        folder = fake.root / job
        (folder / "state").mkdir(parents=True)
        text = "".join(f"{json.dumps(ATTEMPT | each)}\n" for each in attempts)
        (folder / "state/attempts.jsonl").write_text(text)
        if lines:
            log = fake.root.parent / "logs" / job / "train.log"
            log.parent.mkdir(parents=True)
            log.write_text("".join(f"{line}\n" for line in lines))
        return folder

    return write


def page(fake, failed):
    """Write the page of the finished jobs and of those in the folders `failed`; return its text."""
    summary, output = fake.root / "summary.csv", fake.root / "report.html"
    write_summary(summarize(load_jobs(fake.folders)), summary)
    write_page(output, fake.file, summary, fake.folders, failed=failed)
    return " ".join(check(output).text.split())


def test_each_job_is_named_with_its_reason_and_the_end_of_its_log(fake, place):
    for seed in (1, 2):
        fake.job(seed=seed)
    lines = [f"line {number}" for number in range(30)]
    failed = [
        place("allreduce/seed-3", [{"reason": "preempted", "error": None}, {}], lines),
        place(f"{HOSTILE}/seed-1/fold-2", [{"reason": "killed", "error": HOSTILE}]),
    ]
    said = page(fake, failed)
    assert "2 training tasks of 4 did not finish and are not part of this page: allreduce has 2 of 3;" in said
    assert "diverged: the loss is nan" in said
    assert f"line {30 - LAST_LINES} " in said
    assert "line 29" in said
    assert f"line {29 - LAST_LINES} " not in said
    assert f"killed: {HOSTILE}" in said


def test_without_failed_jobs_there_is_no_section(fake):
    fake.job()
    said = page(fake, [])
    assert "Failed" not in said
    assert "did not finish" not in said


def test_a_job_that_never_started_and_one_that_was_not_evaluated(fake, place):
    assert read_failed_job(fake.root / "allreduce/seed-9").cause == "not started"
    folder = fake.job(seed=1)
    (folder / "evaluation.json").unlink()
    assert read_failed_job(folder).cause == "trained, but not evaluated"


def test_a_killed_launcher_leaves_only_its_log(place):
    job = read_failed_job(place("allreduce/seed-1", [], ["epoch 1"]))
    assert (job.cause, job.lines) == ("no end was recorded", "epoch 1")
    # The record of an earlier, finished training says nothing about the end of the present one.
    job = read_failed_job(place("allreduce/seed-2", [{"reason": "finished", "error": None}], ["epoch 1"]))
    assert job.cause == "no end was recorded"
