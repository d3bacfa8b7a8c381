"""`nnlo watch`, `status` and `report`: states of trainings made here, with leases and jobs planted in their files."""

import io
import json
import os
import pty
import select
import shutil
import signal
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.html_page import check
from helpers.nnlo_command import nnlo, refused, start_nnlo
from helpers.training_here import training_here
from rich.console import Console

from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.state.lease import Lease, LeaseOwner
from nnlo_lib.workflow.live_files import History, LiveFiles
from nnlo_lib.workflow.live_jobs import LiveJobs
from nnlo_lib.workflow.live_view import as_text, report_folder, screen, sparkline, watch_trainings

RUNNING = JobReport(Fate.RUNNING, "RUNNING", minutes_left=12.0)
PENDING = JobReport(Fate.PENDING, "PENDING", "Priority", "2026-11-26T06:35:00")
ELSEWHERE = {"host": "n1", "scheduler": "slurm", "job": "7"}
MODEL = {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return the folder of a project whose training was stopped in its second epoch."""
    run = training_here(
        tmp_path_factory.mktemp("stopped"), model=MODEL, train={"epochs": 3, "batch_size": 50}, data={"validation": 0.2},
        runs={"allreduce": {}},
    )  # fmt: skip
    run.finish(expect=75, calls=40)
    return run.folder


@pytest.fixture
def project(stopped, tmp_path, monkeypatch):
    """Return a copy of the project, which is the working directory."""
    shutil.copytree(stopped, tmp_path / "project", symlinks=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def job_folder(project):
    return next((project / "results/t").glob("*/seed-*"))


def plant_lease(training, **changes):
    state = training / "state"
    if changes.get("folder") == "HERE":
        changes["folder"] = str(state)
    owner = replace(LeaseOwner.for_this_process(), **{"inode": state.stat().st_ino, **changes})
    owner.write(state / "lease.json")
    return state / "lease.json"


def look(project, jobs=None, later=0.0):
    watch = LiveJobs(project / "results", lambda: jobs, LiveFiles(clock=lambda: time.time() + later))
    return watch.look()[0]


@pytest.mark.parametrize(
    ("lease", "jobs", "later", "state", "note"),
    [
        (None, None, 0, "preempted", "saved at step"),
        (None, {"7": PENDING}, 0, "preempted", "the same command resumes"),  # the job of another training
        ({}, None, 0, "running", ""),
        (ELSEWHERE, {"7": RUNNING}, 10, "running", ""),
        (ELSEWHERE, {"7": RUNNING}, 100, "hung", "no heartbeat for 100 s, although job 7 runs on n1"),
        (ELSEWHERE, {"7": PENDING}, 100, "requeued", "job 7: Priority; expected start 2026-11-26T06:35:00"),
        (ELSEWHERE, {}, 100, "killed", "job 7 is not in the list of slurm"),
        (ELSEWHERE, None, 100, "hung", "no heartbeat for 100 s; process"),  # the batch system does not answer
        ({"started": 1}, None, 0, "killed", "has ended without a record"),
        ({"inode": 1, "host": "n1"}, None, 0, "copied folder", "the lease is of another folder"),
        (
            {"inode": 1, "host": "n1", "folder": "/a"},
            None,
            0,
            "copied folder",
            "the lease is of /a, by process",
        ),
        # A file system of FUSE may give the folder another number after a while.
        ({"inode": 1, "started": 1, "folder": "HERE"}, None, 0, "killed", "has ended without a record"),
    ],
)
def test_states_of_an_unfinished_training(project, lease, jobs, later, state, note):
    if lease is not None:
        plant_lease(job_folder(project), **lease)
    found = look(project, jobs, later)
    assert (found.state, note in found.note) == (state, True), found
    assert found.left_s == (720 if jobs == {"7": RUNNING} else None)
    assert (found.epochs, found.metric, len(found.values)) == (3, "val_accuracy", 1)


def test_the_lease_of_a_launcher_names_its_folder_and_a_copy_is_recognized(project, tmp_path):
    folder = job_folder(project)
    lease = Lease(folder / "state")
    lease.acquire(False, lambda: False)
    try:
        copy = folder.with_name("seed-9")
        shutil.copytree(folder, copy)
        states = {Path(each.folder).name: each.state for each in LiveJobs(project / "results").look()}
        assert states == {folder.name: "running", "seed-9": "copied folder"}
        owner = LeaseOwner.parse((folder / "state/lease.json").read_bytes())
        assert owner.folder == str(folder / "state")
    finally:
        lease.release()


def test_a_heartbeat_that_was_seen_counts_whatever_the_clocks_say(project):
    lease = plant_lease(job_folder(project), host="n1")
    now = [0.0]
    files = LiveFiles(clock=lambda: time.time() + 3600, monotonic=lambda: now[0])
    watch = LiveJobs(project / "results", lambda: None, files)

    def beat(_):
        now[0] += 7
        os.utime(lease, ns=(0, lease.stat().st_mtime_ns + 5_000_000_000))

    assert watch.look()[0].state == "hung"
    assert watch.settled_look(beat)[0].state == "running"
    now[0] += 31
    assert watch.look()[0].state == "hung"


@pytest.mark.parametrize(
    ("reason", "state"), [("time limit", "time limit"), ("canceled", "canceled"), ("diverged", "failed")]
)
def test_states_of_ended_attempts(project, reason, state):
    record = job_folder(project) / "state/attempts.jsonl"
    fields = json.loads(record.read_text()) | {"reason": reason, "error": "loss is nan"}
    record.write_text(json.dumps(fields))
    found = look(project)
    assert (found.state, found.restarts) == (state, 1)
    assert "loss is nan" in found.note


def test_planned_trainings_wait_start_or_are_pending(project):
    (project / "results/t/.workflow").mkdir(exist_ok=True)
    (project / "results/t/.workflow/planned.json").write_text('["new/seed-1"]')
    records = project / ".snakemake/nnlo_jobs"
    records.mkdir(parents=True)
    record = {"task": "", "status_file": "", "log": "", "output": "results/t/new/seed-1/model.safetensors"}
    (records / "8.json").write_text(json.dumps(record))

    def new(jobs):
        rows = LiveJobs(project / "results/t", lambda: jobs).look()
        return next((row.state, row.note) for row in rows if row.run == "new")

    assert new(None) == ("not started", "")
    assert new({"8": PENDING}) == ("pending", "job 8: Priority; expected start 2026-11-26T06:35:00")
    assert new({"8": RUNNING}) == ("starting", "job 8")
    LeaseOwner.for_this_process().write(project / "results/t/.workflow/lease.json")
    assert new(None) == ("pending", "waits for its turn")


def test_the_pace_of_the_attempt_gives_the_end(project):
    folder = job_folder(project)
    lease = plant_lease(folder, since="2026-11-26T05:00:00+00:00")
    steps = json.loads((folder / "state/history.jsonl").read_text())["step"]
    (folder / "state/step").write_bytes(struct.pack("<qq", steps, 2 * steps))
    begun = 1795669200.0  # 2026-11-26 05:00
    os.utime(folder / "state/step", (begun, begun + 60))
    found = look(project)
    assert lease.exists()
    assert (found.state, found.epoch, found.eta_s) == ("running", 2.0, pytest.approx(60))
    assert found.note.startswith("no step for")
    assert 0 <= found.wait <= 1  # from the checkpoint


def test_trials_of_a_search(project):
    trials = project / "results/t/search/trials"
    trials.mkdir(parents=True)
    decisions = [{"decision": n, "fold": 0, "epochs": e, "pending": []} for n, e in enumerate((1, 3))]
    for number in (0, 1, 2):
        (trials / f"{number:04d}.json").write_text(
            json.dumps({"trial": number, "point": {}, "decisions": decisions})
        )
    shutil.copytree(job_folder(project), trials / "0000/fold-0")
    (trials / "0001/fold-0").mkdir(parents=True)
    (trials / "0001/fold-0/epochs-3.json").write_text('{"status": "failed", "error": "no memory"}')
    rows = [row for row in LiveJobs(project / "results/t").look() if row.run == "search"]
    assert [(row.job, row.state, row.epochs) for row in rows] == [
        ("trial 0 fold-0", "preempted", 3), ("trial 1 fold-0", "failed", 3), ("trial 2 fold-0", "not started", 3),
    ]  # fmt: skip


def test_a_table_that_grows_is_read_once(tmp_path):
    path, history = tmp_path / "history.jsonl", History()
    path.write_text('{"val_loss": 3}\n{"val_l')
    history.read(path, ["val_accuracy", "val_loss"])
    assert history.values == [3]
    with path.open("a") as file:
        file.write('oss": 2}\n')
    with_first_damaged = b'{"val_loss": X' + path.read_bytes()[14:]
    with path.open("rb+") as file:
        file.write(with_first_damaged)
    history.read(path, ["val_loss"])
    assert history.values == [3, 2]
    path.with_suffix(".new").write_text('{"val_loss": 5}\n')
    path.with_suffix(".new").rename(path)  # as a restart does
    history.read(path, ["val_loss"])
    assert history.values == [5]


def test_unchanged_files_are_not_parsed_again(project):
    path, parsed, files = job_folder(project) / "state/attempts.jsonl", [], LiveFiles()
    for _ in range(3):
        assert files.read(path, lambda path: parsed.append(path) or "content") == "content"
    assert parsed == [path]


def test_status_prints_what_watch_prints_once(project):
    said = nnlo("status", folder=project).stdout
    assert said == nnlo("watch", "results", "--once", folder=project).stdout
    assert said.startswith("t: 1 preempted\ntraining")
    assert json.loads(nnlo("watch", "--json", folder=project).stdout)[0]["state"] == "preempted"
    assert "pass results/<experiment>" in refused(nnlo("watch", "none", folder=project))
    # Without a terminal, for example in a pipe, the table is printed once.
    assert nnlo("watch", folder=project).stdout == said
    assert "`nnlo report results` writes the page" in refused(
        nnlo("watch", "--html", "x.html", folder=project)
    )


def test_the_report_of_an_experiment_without_and_with_results(project):
    said = refused(nnlo("report", "results/t", folder=project))
    assert "results/t: no training has results yet; `nnlo status results/t` shows why (1 preempted)" in said
    assert not (project / "results/t/report.html").exists()
    shutil.copytree(job_folder(project), job_folder(project).with_name("seed-1"))
    assert nnlo("run", "t.yaml", folder=project).returncode in (0, None)
    shown = " ".join(check(report_folder(Path("results/t"))).text.split())
    assert "1 training task of 2 did not finish" in shown
    assert "preempted" in shown
    assert "0 experiments" in refused(nnlo("report", "data", folder=project))


def lines_of(shown, width):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_text().splitlines()


def test_the_screen_shows_all_that_the_table_shows(project):
    jobs = LiveJobs(project / "results").look()
    counts, *shown = lines_of(screen(jobs, 160, 30), 160)
    headline, *table = as_text(jobs).splitlines()
    assert counts.startswith(headline.removeprefix("t: "))
    assert [line.split() for line in shown[: len(table)]] == [line.split() for line in table]
    assert shown[-1].strip() == f"nnlo report {project / 'results' / 't'} writes the page so far"
    (project / "results/t/report.html").write_text("")
    *_, columns, page = lines_of(screen(jobs, 160, 30), 160)
    assert "left: to the last epoch" in columns or "left" not in shown[0]
    assert page.strip() == f"page: {project / 'results' / 't' / 'report.html'}"
    other = replace(jobs[0], experiment="u")
    assert lines_of(screen([jobs[0], other], 170, 30), 170)[1].startswith("experiment training")


def test_a_screen_that_is_too_low_shows_first_what_failed_and_what_runs_and_counts_the_rest(project):
    (job,) = LiveJobs(project / "results").look()
    states = ["finished"] * 5 + ["running", "failed", "not started"]
    jobs = [replace(job, state=state, job=f"seed-{seed}") for seed, state in enumerate(states)]
    shown = lines_of(screen(jobs, 160, 6), 160)
    assert len(shown) == 6
    assert [line.split()[1:3] for line in shown[2:5]] == [
        ["seed-6", "failed"], ["seed-5", "running"], ["seed-0", "finished"],
    ]  # fmt: skip
    assert shown[0].startswith("5 finished, ")
    assert shown[5] == "and 5 more: 4 finished, 1 not started"


def test_a_narrow_screen_keeps_names_states_and_progress(project):
    plant_lease(job_folder(project))
    (job,) = LiveJobs(project / "results").look()
    heading, row = lines_of(screen([replace(job, note="a reason " * 9)], 80, 30), 80)[1:3]
    assert row.startswith("allreduce seed-0 running")
    assert row.rstrip().endswith("…")  # of the note only
    assert row.count("…") == heading.count("note") == 1
    assert "samples/s" not in heading
    # The metric is the last that goes.
    ends = replace(
        job, eta_s=900.0, left_s=900.0, metric="val_accuracy", values=(0.1, 0.9), note="a reason " * 9
    )
    assert "metric" in lines_of(screen([ends], 90, 30), 90)[1]
    assert "left" not in lines_of(screen([ends], 90, 30), 90)[1]


def test_a_watch_that_starts_too_early_waits_for_the_folder(project):
    class EndError(Exception): ...

    steps = iter(["appears", "is refreshed"])
    (project / "results").rename(project / "later")
    console = Console(width=160, height=20, force_terminal=True, file=io.StringIO())
    seen = []

    def sleep(seconds):
        seen.append((seconds, console.file.getvalue()))
        console.file.seek(console.file.truncate(0))
        if next(steps, None) is None:
            raise EndError
        if not (project / "results").exists():
            (project / "later").rename(project / "results")

    with pytest.raises(EndError):
        watch_trainings(Path("results"), 5, console, sleep)
    (seconds, first), (_, second), (_, third) = seen
    assert seconds == 5
    assert "results: no such folder yet; it appears when the first training starts" in first
    assert "1 preempted" in second
    assert "1 preempted" in third


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_screen_without_a_word(project, monkeypatch, number):
    # rich takes these before the size of its terminal.
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", "30")
    master, slave = pty.openpty()
    process = start_nnlo("watch", "results", "--every", "1000", folder=project, terminal=slave)
    said, deadline = "", time.monotonic() + 120

    def read_until(text):
        nonlocal said
        while text not in said:
            assert select.select([master], [], [], deadline - time.monotonic())[0], said
            said += os.read(master, 65536).decode(errors="replace")

    read_until("1 preempted")
    process.send_signal(number)
    read_until("\x1b[?1049l")  # the screen of before
    assert process.wait(60) == 0
    assert "stopped" not in said
    assert "Traceback" not in said
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize(
    ("values", "blocks"),
    [
        ((), ""),
        ((1.0,), "▁"),
        ((0.0, 1.0), "▁█"),
        ((2, 2, 2), "▁▁▁"),
        ((float("nan"), 0, 7), "▁█"),
        (range(8), "▁▂▃▄▅▆▇█"),
    ],
)
def test_sparkline(values, blocks):
    assert sparkline(values) == blocks


def test_no_trainings(tmp_path):
    assert as_text(LiveJobs(tmp_path).look()) == "no trainings"
