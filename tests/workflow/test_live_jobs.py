"""`nnlo watch`, `status` and `report`: states of trainings made here, with leases and jobs planted in their files."""

import io
import json
import os
import pty
import select
import shutil
import struct
import termios
import time
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.html_page import check
from helpers.nnlo_command import nnlo, refused, start_nnlo
from helpers.training_here import training_here
from rich.console import Console

from nnlo_lib.batch.batch_job import ListedJob
from nnlo_lib.batch.job_states import Fate
from nnlo_lib.state.lease import Lease, LeaseOwner
from nnlo_lib.workflow.live_files import History, LiveFiles
from nnlo_lib.workflow.live_jobs import LiveJobs
from nnlo_lib.workflow.live_view import Screen, as_text, keep_page, report_folder, sparkline

RUNNING = ListedJob(Fate.RUNNING, "", "", 12.0)
PENDING = ListedJob(Fate.PENDING, "Priority", "2026-11-26T06:35:00", None)
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
    (project / "results/t/.workflow").mkdir()
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
    assert "needs a terminal" in refused(nnlo("watch", folder=project))


def test_the_page_loads_itself_again_only_while_a_training_is_active(project):
    page, lease = project / "live.html", plant_lease(job_folder(project))
    seen = []

    def end_training(seconds):
        seen.append((seconds, page.read_text()))
        lease.unlink()

    keep_page(LiveJobs(project / "results"), page, 30, end_training)
    ((seconds, running),) = seen
    assert (seconds, 'http-equiv="refresh" content="30"' in running, "1 running" in running) == (
        30,
        True,
        True,
    )
    assert "1 preempted" in check(page).text
    assert 'http-equiv="refresh"' not in page.read_text()


def test_the_report_of_an_experiment_without_and_with_results(project):
    page = report_folder(Path("results/t"))
    assert "1 preempted" in check(page).text
    assert (project / "results/t/.workflow/partial.txt").exists()
    shutil.copytree(job_folder(project), job_folder(project).with_name("seed-1"))
    assert nnlo("run", "t.yaml", folder=project).returncode in (0, None)
    shown = " ".join(check(report_folder(Path("results/t"))).text.split())
    assert "1 training task of 2 did not finish" in shown
    assert "preempted" in shown
    assert "0 experiments" in refused(nnlo("report", "data", folder=project))


def test_keys_of_the_screen(project):
    screen = Screen(LiveJobs(project / "results"))
    screen.refresh()
    console = Console(width=160, record=True, file=io.StringIO())
    assert all(map(screen.press, ("j", "l", "r", "")))
    assert screen.message.startswith("wrote ")
    console.print(screen.render(30, 160))
    shown = console.export_text()
    assert "1 preempted" in shown
    assert "samples/s" in shown
    assert "state/log.txt" in shown
    screen.press("f")
    assert screen.shown == []
    assert not screen.press("q")


def test_a_narrow_screen_keeps_names_states_and_progress(project):
    plant_lease(job_folder(project))
    screen = Screen(LiveJobs(project / "results"))
    screen.refresh()
    screen.jobs = [replace(screen.jobs[0], note="a reason " * 9)]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(screen.render(30, 80))
    heading, row = console.export_text().splitlines()[1:3]
    assert row.startswith("allreduce seed-0 running")
    assert row.rstrip().endswith("…")  # of the note only
    assert row.count("…") == heading.count("note") == 1
    assert "samples/s" not in heading


class Terminal:
    """A terminal of 200 columns on which `nnlo watch` runs."""

    def __init__(self, folder):
        self._master, self._slave = pty.openpty()
        termios.tcsetwinsize(self._slave, (30, 200))
        self.settings = termios.tcgetattr(self._slave)
        # A long interval: only keys draw the screen again.
        self.process = start_nnlo("watch", "results", "--every", "1000", folder=folder, terminal=self._slave)

    def press(self, keys, shown):
        """Send keys; return the screen once it shows a text, and fail after a minute."""
        os.write(self._master, keys)
        screen, deadline = "", time.monotonic() + 60
        while shown not in screen:
            assert select.select([self._master], [], [], deadline - time.monotonic())[0], screen
            screen += os.read(self._master, 65536).decode(errors="replace")
        return screen

    def end(self):
        """Return the exit status and whether the settings of the terminal are those of before."""
        status = self.process.wait(60)
        is_restored = termios.tcgetattr(self._slave) == self.settings
        os.close(self._master)
        os.close(self._slave)
        return status, is_restored


@pytest.mark.processes
def test_keys_on_a_terminal(project, monkeypatch):
    # rich takes these before the size of its terminal.
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", "30")
    shutil.copytree(job_folder(project), job_folder(project).with_name("seed-1"))
    terminal = Terminal(project)
    terminal.press(b"", "q quit")
    terminal.press(b"l", "seed-0/state/log.txt")
    terminal.press(b"\x1b[B", "seed-1/state/log.txt")
    terminal.press(b"\x1b[A", "seed-0/state/log.txt")
    terminal.press(b"f", "(failures only)")
    terminal.press(b"f", "seed-1")
    terminal.press(b"q", "\x1b[?1049l")  # the screen of before
    assert terminal.end() == (0, True)


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
