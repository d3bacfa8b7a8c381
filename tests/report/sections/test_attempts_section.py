"""Attempts on the page: a section if a training was interrupted, and each job without results, with its reason and log."""

import re

import pytest
from helpers.html_page import HOSTILE, check

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.report.sections.attempts import LAST_LINES, STOPPED_CAUSES, attempt_figure, read_failed_job
from nnlo_lib.report.tables import load_jobs


@pytest.fixture
def interrupted(fake):
    """Return an experiment of three trainings: uninterrupted, preempted twice, and stopped by its time limit."""
    fake.attempts(fake.job(seed=1), ("finished", 3, 0, 820, 820))
    fake.attempts(
        fake.job(seed=2, fold=1),
        ("preempted", 4, 0, 300, 290), ("preempted", 2, 290, 400, 400), ("finished", 4, 400, 820, 820),
    )  # fmt: skip
    fake.attempts(fake.job(seed=3), ("time limit", 8, 0, 600, 595), ("finished", 2, 595, 820, 820))
    fake.change(fake.folders[1], training_seconds=450.0, seconds={"total": 590.0})
    fake.change(fake.folders[2], training_seconds=505.0, seconds={"total": 590.0, "evaluate": 50.0})
    return fake


def rows(page):
    """Return the texts of the cells of the section's table, with ordinary spaces."""
    body = re.search(r'id="attempts">.*?<tbody>(.*?)</tbody>', page.read_text(), re.S)[1]
    cells = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", body, re.S)
    ]
    # The last cell has the text of each attempt.
    return [[" ".join(re.sub(r"<[^>]*>", "", cell).split()) for cell in row[:-1]] for row in cells]


def test_counts_and_bars_are_those_of_the_recorded_attempts(interrupted, report):
    page = report(interrupted)
    said = " ".join(check(page).text.split())
    assert (
        "2 of 3 training tasks were interrupted and resumed (2 × preempted and 1 × time limit); 15 steps were repeated."
        in said
    )
    assert rows(page) == [
        ["allreduce seed 2, fold 1", "3", "2 × preempted and 1 × finished", "10", "150 s", "240 s", "75.0 %"],
        ["allreduce seed 3", "2", "1 × time limit and 1 × finished", "5", "45.0 s", "120 s", "92.5 %"],
    ]
    columns = attempt_figure(load_jobs(interrupted.folders)).spec["data"]["columns"]
    drawn = dict(
        zip((text.replace("\u00a0", " ") for text in columns["text"]), columns["value"], strict=True)
    )
    assert drawn["attempt 1, 240 s on node1: preempted at step 300"] == 240
    assert drawn["attempt 1, 480 s on node1: time limit at step 600"] == 480


def test_a_torn_last_line_takes_nothing_from_the_other_attempts(interrupted, report):
    whole = report(interrupted).read_text()
    with (interrupted.folders[2] / "state/attempts.jsonl").open("a") as file:
        file.write('{"attempt": 3, "sta')
    checksums = re.compile(r"[0-9a-f]{64}")  # the page records checksums of its inputs
    assert checksums.sub("", report(interrupted).read_text()) == checksums.sub("", whole)


@pytest.mark.parametrize("record", ["one attempt", "no record", "unreadable"])
def test_without_an_interruption_there_is_no_section(fake, report, record):
    folder = fake.job()
    if record != "no record":
        fake.attempts(folder, ("finished", 3, 0, 820, 820))
    if record == "unreadable":
        (folder / "state/attempts.jsonl").write_text('{"attempt": 1, "star')
    page = report(fake)
    assert "interrupted" not in check(page).text
    assert not re.search('(id="|href="#)attempts"', page.read_text())


def test_early_stopping_is_reported(fake, report):
    fake.change(fake.job(seed=1), ended_early="early stopping: val_loss was not better 4 times")
    fake.job(seed=2)
    text = check(report(fake)).text
    assert "1 of 2 training tasks ended early because a stopping rule applied." in text


def test_virtual_seconds_are_not_set_against_those_of_attempts(fake, report):
    fake.attempts(fake.gossip(), ("killed", 4, 0, 30, 20), ("finished", 4, 20, 820, 820))
    assert rows(report(fake)) == [
        ["dsgd seed 1", "2", "1 × killed and 1 × finished", "10", "–", "120 s", "–"]
    ]


def failed_job(fake, job, *attempts, error=None, lines=()):
    """Write a job without results: its attempts, and the lines of its log."""
    folder = fake.root / job
    fake.attempts(folder, *attempts, error=error)
    log = fake.root.parent / "logs" / job / "train.log"
    if lines:
        log.parent.mkdir(parents=True)
        log.write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_each_job_is_named_with_its_reason_and_the_end_of_its_log(fake, report):
    fake.job(seed=1), fake.job(seed=2)
    lines = [f"line {number}" for number in range(30)]
    ends = [("preempted", 1, 0, 9, 6), ("diverged", 1, 6, 9, 6)]
    failed = [
        failed_job(fake, "allreduce/seed-3", *ends, error="the loss is nan", lines=lines),
        failed_job(fake, f"{HOSTILE}/seed-1/fold-2", ("killed", 1, 0, 9, 6), error=HOSTILE),
    ]
    said = " ".join(check(report(fake, failed=dict.fromkeys(failed, ""))).text.split())
    assert "2 training tasks of 4 did not finish and are not part of this page: allreduce has 2 of 3;" in said
    assert "diverged: the loss is nan" in said
    assert f"line {30 - LAST_LINES} " in said
    assert "line 29" in said
    assert f"line {29 - LAST_LINES} " not in said
    assert f"killed: {HOSTILE}" in said
    said = check(report(fake)).text
    assert "Failed" not in said
    assert "did not finish" not in said


def test_the_cause_if_no_attempt_recorded_one(fake):
    assert read_failed_job(fake.root / "allreduce/seed-9").cause == "not started"
    folder = fake.job(seed=1)
    (folder / "evaluation.json").unlink()
    assert read_failed_job(folder).cause == "trained, but not evaluated"
    log = RunPaths(folder).workflow_logs / "train.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("epoch 1/1\nnnlo: stopped by SIGINT; run the same command again\n")
    assert read_failed_job(folder).cause in STOPPED_CAUSES
    # A killed launcher leaves only its log; the record of an earlier, finished training says nothing about it.
    for number, ended in enumerate([(), [("finished", 1, 0, 9, 9)]], 2):
        job = read_failed_job(failed_job(fake, f"allreduce/seed-{number}", *ended, lines=["epoch 1"]))
        assert (job.cause, job.lines) == ("no end was recorded", "epoch 1")
    stopped = "nnlo: stopped by SIGINT; run the same command again"
    assert read_failed_job(failed_job(fake, "allreduce/seed-5", lines=[stopped])).cause == "not started"
