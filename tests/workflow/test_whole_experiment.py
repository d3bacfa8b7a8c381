"""`nnlo init` and `nnlo all` need no clone: an experiment runs from its file to its page in any folder."""

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import zipfile
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import yaml
from helpers.document_blocks import blocks, matches, write_files
from helpers.repository_copy import REPOSITORY, environment
from helpers.training_here import run_here, share_store

import snakemake_logger_plugin_nnlo
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import experiment_from_settings, load_experiment
from nnlo_lib.workflow import whole_experiment
from nnlo_lib.workflow.snakemake_start import the_experiment_file
from nnlo_lib.workflow.whole_experiment import interrupt, run_experiment, write_folder
from snakemake_logger_plugin_nnlo import LogHandler

SHORT = {"runs": {"alone": {"parallel": {"ranks": 1}}}, "train": {"epochs": 1}}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the environment of a shell in which NNLO is installed from its wheel, and nothing of the clone is found."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    subprocess.run([*build, REPOSITORY], check=True, capture_output=True)
    [archive] = folder.glob("nnlo-*.whl")
    zipfile.ZipFile(archive).extractall(folder / "site")
    return environment() | {"PYTHONPATH": str(folder / "site")}


@pytest.mark.real
@pytest.mark.snakemake
def test_the_wheel_alone_runs_the_experiment_of_the_readme_in_an_empty_folder(wheel, tmp_path):
    def nnlo(*arguments):
        command = [sys.executable, "-m", "nnlo_lib.cli", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=wheel, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )  # fmt: skip

    assert nnlo("init").returncode == 0
    readme = REPOSITORY / "README.md"
    write_files(readme, tmp_path)
    (console,) = (block for block in blocks(readme) if block.language == "console")
    [command] = console.commands
    done = nnlo(*command.split()[1:])
    assert done.returncode == 0, done.stdout
    assert matches(console.text, f"$ {command}\n{done.stdout}"), (
        f"`make outputs` renews the README\n{done.stdout}"
    )
    assert "<html" in (tmp_path / "results/mine/report.html").read_text()
    assert str(REPOSITORY) not in done.stdout + "".join(
        path.read_text() for path in tmp_path.rglob("logs/**/*.log")
    )
    assert "Nothing to be done" in nnlo(*command.split()[1:]).stdout


def test_a_new_folder_holds_an_experiment_a_snakefile_and_the_profiles(tmp_path):
    written = {str(path.relative_to(tmp_path)) for path in write_folder(tmp_path)}
    profiles = {f"{name}/config.yaml" for name in ("local", "slurm", "lsf")}
    assert written == {"config/config.yaml", "Snakefile"} | profiles
    assert (tmp_path / "slurm/config.yaml").read_text() == (REPOSITORY / "slurm/config.yaml").read_text()
    assert load_experiment(tmp_path / "config/config.yaml").name == "quickstart"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"Snakefile.*would be overwritten; pass a new folder"):
        write_folder(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def snakemake_with(files=(), config=(), prefix=None, module="__main__", **more):
    """Return what the Snakefile reads of Snakemake's workflow; a stand-in, real modules are in test_modules.py."""
    paths = SimpleNamespace(prefix=prefix, modifies_prefixes=False)
    modifier = SimpleNamespace(path_modifier=paths, globals={"__name__": module})
    settings = SimpleNamespace(config=dict(config))
    return SimpleNamespace(
        configfiles=files, config_settings=settings, modifier=modifier, is_main_process=True, **more
    )


def test_what_snakemake_would_merge_is_refused(tmp_path):
    file, load = tmp_path / "a.yaml", lambda path: yaml.safe_load(Path(path).read_text())
    file.write_text("name: a\ntrain: {epochs: 3}\nx-lab: 1\n")
    assert the_experiment_file(snakemake_with(), {"mine": 3}, load) == "config/config.yaml"
    assert the_experiment_file(snakemake_with([file]), {"name": "a", "train": {"epochs": 3}}, load) == str(
        file
    )
    for workflow, config, refusal in (
        (
            snakemake_with([Path("a.yaml"), Path("b.yaml")]),
            {},
            r"one experiment at a time, not 2 \(a.yaml, b.yaml\)",
        ),
        (
            snakemake_with(config={"train": 3}),
            {},
            "--config train: settings are read from the experiment file",
        ),
        (
            snakemake_with([file]),
            {"train": {"epochs": 4}},
            "config: train of the Snakefile or module differs from",
        ),
        (
            snakemake_with(),
            {"data": "digits"},
            "config: data of the Snakefile or module differs from config/config.yaml",
        ),
        (snakemake_with(prefix="sub/"), {}, "module: NNLO's paths .* take no `prefix:`"),
        (snakemake_with(module="b", nnlo_module="a"), {}, "module b: NNLO is a module already"),
    ):
        with pytest.raises(UserError, match=refusal):
            the_experiment_file(workflow, config, load)


def test_all_trainings_run_one_after_the_other_and_continue_after_a_stop(tmp_path, monkeypatch):
    """The first call stops in the first training; the second trains all, the third nothing."""
    monkeypatch.setenv("NNLO_NO_FORK", "1")
    monkeypatch.setenv("NNLO_SESSION", "")  # restored after the test
    runs = {"a": {}, "bad": {"train": {"optimizer": {"name": "sgd", "lr": 1e30}}}}
    settings = {
        "name": "t", "seeds": [0, 1], "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
        "train": {"epochs": 1, "steps_per_epoch": 3}, "parallel": {"transport": "simulated"}, "runs": runs,
        "observe": {"notify": f'echo "$NNLO_EVENT" >> {tmp_path}/events.txt'},
    }  # fmt: skip
    share_store(tmp_path)
    releases = []
    monkeypatch.setattr("nnlo_lib.workflow.plan.atexit.register", releases.append)

    def run(*options, calls=None):
        (tmp_path / "t.yaml").write_text(yaml.safe_dump(settings))
        done = run_here("t.yaml", "--all", *options, folder=tmp_path, calls=calls)
        with chdir(tmp_path):
            while releases:
                releases.pop()()
        return done

    assert "remove --run, --seed, --fold and --set" in run("--seed", "1").stderr
    stopped = run(calls=1)
    assert stopped.returncode == 75
    assert stopped.stderr.endswith("stopped; the same command resumes\n")
    assert (tmp_path / "events.txt").read_text().split()[-1] == "stopped"
    done = run()
    results = tmp_path / "results/t"
    assert done.returncode == 1
    # In one process, the output of the jobs is on this stderr, too.
    lines = re.findall(r"^\d\d:\d\d:\d\d  (.*?)  (accuracy|failed)", done.stderr, re.MULTILINE)
    jobs = [("a", "accuracy"), ("bad", "failed")]
    assert lines == [(f"{name}/seed-{seed}", result) for name, result in jobs for seed in (0, 1)]
    assert "trainings without results: 2; results/t/report.html shows the others" in done.stderr
    del runs["bad"]
    before = (results / "a/seed-1/summary.json").read_bytes()
    again = run()
    assert again.returncode == 0
    assert again.stdout.splitlines()[-1] == "results/t/report.html"
    assert not re.search(r"^\d\d:\d\d:\d\d", again.stderr, re.MULTILINE)  # no line of a training
    assert (results / "a/seed-1/summary.json").read_bytes() == before
    assert (tmp_path / "logs/t/a/seed-0/train.log").exists()


def test_a_profile_is_a_folder_here_or_of_the_user_or_of_nnlo(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        whole_experiment.subprocess, "Popen", lambda command, **_: calls.append(command) or 1 / 0
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    experiment = load_experiment(REPOSITORY / "config/config.yaml")

    def used(name):
        with pytest.raises(ZeroDivisionError):
            run_experiment(experiment, "e.yaml", name, ["--jobs", "3"])
        assert calls[-1][4:6] == ["--jobs", "3"]
        return calls[-1][calls[-1].index("--profile") + 1]

    assert used("slurm") == str(REPOSITORY / "profiles/slurm")
    for place in (tmp_path / "home/.config/snakemake/slurm", tmp_path / "slurm"):
        place.mkdir(parents=True)
        (place / "config.v8+.yaml").touch()
        assert Path(used("slurm")).resolve() == place
    message = r"--profile: slrum is neither a folder with config\.yaml nor one of local, lsf, slurm"
    with pytest.raises(UserError, match=message):
        run_experiment(experiment, "e.yaml", "slrum", [])


def test_the_log_has_a_line_for_each_job_with_the_time_left(tmp_path, monkeypatch, capsys):
    """Three trainings one after the other, then the report."""
    now = [0.0]
    monkeypatch.setattr(snakemake_logger_plugin_nnlo.time, "monotonic", lambda: now[0])
    handler = LogHandler(None, None)

    def event(seconds=0.0, **fields):
        now[0] += seconds
        handler.emit(logging.makeLogRecord({"levelno": logging.INFO, "msg": ""} | fields))
        return capsys.readouterr().err[len("00:00:00  ") :].rstrip()

    def start(number, rule, *outputs):
        return event(
            event="job_info",
            jobid=number,
            rule_name=rule,
            rule_msg=f"{rule} {number}",
            output=outputs,
            log=["a.log"],
        )

    (tmp_path / "evaluation.json").write_text(
        '{"split": "test", "samples": 355, "accuracy": 0.875, "loss": 0.5}'
    )
    evaluation = str(tmp_path / "evaluation.json")
    assert event(event="run_info", stats={"train": 2, "report": 2, "total": 4}) == ""
    assert start(1, "train", evaluation) == "started: train 1"
    ended = event(100, event="job_finished", job_id=1)
    assert ended == "train 1  accuracy 0.8750, loss 0.5000  100 s  about 100 s left"
    assert start(2, "report", "report.html") == ""
    assert event(10, event="job_finished", job_id=2) == "report 2  10 s  about 110 s left"
    assert start(3, "train", evaluation) == "started: train 3"
    assert event(50, event="job_error", jobid=3, log=["a.log"]) == "failed: train 3 (log: a.log)"
    for end in (75, 130, 143, -signal.SIGINT, -signal.SIGTERM, 1, -signal.SIGKILL):
        command = (
            f"RuleException:\nCalledProcessError in file x, line 1: {subprocess.CalledProcessError(end, 'x')}"
        )
        assert event(levelno=logging.ERROR, event="error", exception="RuleException", msg=command) == ""
        ending = "failed" if end in (1, -signal.SIGKILL) else "stopped"
        assert event(event="job_error", jobid=3, log=["a.log"]) == f"{ending}: train 3 (log: a.log)"
    assert event(levelno=logging.WARNING, msg="x" * 10 + "0123\nmore") == "0123", "a warning has no time"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a working directory whose Snakemake is a process with a status."""
    monkeypatch.chdir(tmp_path)
    process = mock.MagicMock()
    process.__enter__.return_value = process
    process.wait.return_value = 1
    monkeypatch.setattr(whole_experiment.subprocess, "Popen", mock.Mock(return_value=process))
    return tmp_path


def run(*options):
    """Return the exit status, and the command of Snakemake."""
    status = run_experiment(experiment_from_settings({"name": "t", **SHORT}), "e.yaml", "local", options)
    return status, whole_experiment.subprocess.Popen.call_args[0][0]


def test_the_snakefile_of_another_workflow_is_not_run(folder, caplog):
    def snakefile():
        command = run("--until", "train")[1]
        assert command[4:6] == ["--until", "train"], "a target after --configfile would be a file"
        return command[command.index("--snakefile") + 1]

    assert snakefile() == str(whole_experiment.SNAKEFILE)
    write_folder(folder)
    assert snakefile() == "Snakefile"
    assert caplog.text == ""
    (folder / "Snakefile").write_text("rule all:\n    shell: 'rm -r results'\n")
    assert snakefile() == str(whole_experiment.SNAKEFILE)
    assert "Snakefile: not used, because it is of another workflow" in caplog.text


@pytest.mark.parametrize(
    "options", [["--configfile", "b.yaml"], ["-s", "x"], ["--jobs", "2", "--profile=slurm"]]
)
def test_options_that_nnlo_all_sets_are_refused(folder, options):
    message = r"--snakemake: nnlo all sets (--configfile|-s|--profile=slurm) itself"
    with pytest.raises(UserError, match=message):
        run(*options)


def test_a_killed_snakemake_is_named(folder, caplog):
    whole_experiment.subprocess.Popen.return_value.wait.return_value = -9
    assert run()[0] == 137
    assert "Snakemake was killed by SIGKILL" in caplog.text


def test_a_dry_run_has_no_comparison(folder, monkeypatch, capsys):
    whole_experiment.subprocess.Popen.return_value.wait.return_value = 0
    monkeypatch.setattr(whole_experiment, "divide_jobs", lambda _: (["a"], ["b", "c"]))
    assert run("--dry-run")[0] == 0
    assert capsys.readouterr().out == "trainings without results: 2 of 3; no comparison\n"


def test_a_folder_for_temporary_files_that_cannot_be_written_is_replaced(folder, monkeypatch, caplog):
    """TMPDIR of a batch job that has ended; Snakemake would end with a traceback of its solver."""
    monkeypatch.setenv("TMPDIR", str(folder / "gone"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    run()
    used = whole_experiment.subprocess.Popen.call_args[1]["env"]["TMPDIR"]
    assert Path(used).is_dir()
    assert f"TMPDIR: {folder}/gone is missing, full or read-only; {used} is used" in caplog.text


def test_a_folder_that_cannot_be_written_is_named_before_snakemake_starts(folder, monkeypatch):
    (folder / "logs").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: path != Path("logs"))  # root may write everywhere
    with pytest.raises(UserError, match=r"^logs does not let its owner read and write .*chmod"):
        run()


TREE = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(900)"]
server = subprocess.Popen(sleep, start_new_session=True, stdout=subprocess.PIPE)
job = subprocess.Popen(sleep, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
server.stdout.readline(), job.stdout.readline()
try:
    print("up", flush=True)
    job.wait()
except KeyboardInterrupt:
    print(-job.wait(), server.poll(), flush=True)
    server.kill()
"""


@pytest.mark.processes
def test_a_signal_to_nnlo_alone_reaches_the_jobs_but_not_the_fork_server():
    """SIGTERM of `timeout` or of a batch system; Snakemake would wait for the end of its trainings."""
    with subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, text=True) as snakemake:
        assert snakemake.stdout.readline() == "up\n"
        interrupt(snakemake.pid)
        assert snakemake.stdout.read() == f"{signal.SIGINT:d} None\n"


@pytest.mark.parametrize("taken", ["local", "config"])
def test_a_file_in_place_of_a_folder_is_named_before_anything_is_written(tmp_path, taken):
    (tmp_path / taken).touch()
    with pytest.raises(UserError, match=rf"{taken}: would be overwritten"):
        write_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    with pytest.raises(UserError, match=r"cannot write .*: Not a directory"):
        write_folder(tmp_path / taken / "below")


def test_a_result_that_cannot_be_read_does_not_end_the_log(tmp_path, capsys):
    """An exception in a handler ends the thread in which Snakemake logs."""
    handler = LogHandler(mock.Mock(dryrun=False), None)
    fields = {"rule_name": "train", "rule_msg": "train one", "output": [str(tmp_path / "none")], "log": []}
    handler.emit(logging.makeLogRecord({"event": "job_info", "jobid": 1, **fields}))
    handler.emit(logging.makeLogRecord({"event": "job_finished", "job_id": 1}))
    assert "FileNotFoundError" in capsys.readouterr().err
    handler = LogHandler(mock.Mock(dryrun=True), None)
    handler.emit(logging.makeLogRecord({"event": "job_info", "jobid": 1, **fields}))
    assert capsys.readouterr().err == "planned: train one\n"
