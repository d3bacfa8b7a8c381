"""The section of failed jobs names each job without results, its reason and the last lines of its log."""

from helpers.html_page import HOSTILE, check

from nnlo_lib.report.sections.attempts import LAST_LINES, read_failed_job


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
    lines, ends = (
        [f"line {number}" for number in range(30)],
        [("preempted", 1, 0, 9, 6), ("diverged", 1, 6, 9, 6)],
    )
    failed = [
        failed_job(fake, "allreduce/seed-3", *ends, error="the loss is nan", lines=lines),
        failed_job(fake, f"{HOSTILE}/seed-1/fold-2", ("killed", 1, 0, 9, 6), error=HOSTILE),
    ]
    said = " ".join(check(report(fake, failed=failed)).text.split())
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
    # A killed launcher leaves only its log; the record of an earlier, finished training says nothing about it.
    for number, ended in enumerate([(), [("finished", 1, 0, 9, 9)]], 2):
        job = read_failed_job(failed_job(fake, f"allreduce/seed-{number}", *ended, lines=["epoch 1"]))
        assert (job.cause, job.lines) == ("no end was recorded", "epoch 1")
