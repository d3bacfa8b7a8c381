"""Comparison of the clocks of a training: phases, history and attempts."""

from helpers.recomputation.audit import Audit
from helpers.recomputation.raw import Job, Trainings

LEAST_NAMED = 0.6  # share of the total in named phases, of a training of a second
ROUNDING = 2e-6  # seconds in history.csv have six decimals
LAUNCH_S = 0.01  # the seconds of an attempt have three decimals


def check_clocks(audit: Audit, raw: Trainings) -> None:
    """Compare the sum of the phases with the total, the total with the attempts, and the training time with the history."""
    for job in raw.jobs:
        for rank, seconds in enumerate(job.summary["seconds_by_rank"]):
            named = sum(value for name, value in seconds.items() if name != "total")
            where = f"{job.run} {job.name}, rank {rank}: phases of {named:.4f} s in {seconds['total']:.4f} s"
            audit.require(named <= seconds["total"] * (1 + 1e-9) + ROUNDING, audit.page, where)
            audit.require(named >= LEAST_NAMED * seconds["total"], audit.page, where)
        _check_training(audit, job)


def _check_training(audit: Audit, job: Job) -> None:
    summary, last = job.summary, job.history[-1]
    trained, total = summary["training_seconds"], max(each["total"] for each in summary["seconds_by_rank"])
    where = f"{job.run} {job.name}"
    audit.require(
        abs(trained - last["seconds"]) <= ROUNDING, audit.page, f"{where}: {trained} s, {last['seconds']} s"
    )
    speed = summary["samples_seen"] / trained
    near = abs(speed - summary["samples_per_second"]) <= 1e-4 * speed
    audit.require(near, audit.page, f"{where}: {speed} samples/s, {summary['samples_per_second']} recorded")
    audit.require(trained <= total + ROUNDING, audit.page, f"{where}: trained {trained} s of {total} s")
    attempts = sum(each["seconds"] for each in job.attempts) + LAUNCH_S
    if not job.simulated:
        audit.require(total <= attempts, audit.page, f"{where}: {total} s in attempts of {attempts} s")
