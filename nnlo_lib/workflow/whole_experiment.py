"""`nnlo all`, `nnlo run --all` and `nnlo init`: an experiment from its file to its page by one command, in any folder."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.atomic_file import atomic_write, load_json
from nnlo_lib.core.errors import EXIT_STOPPED, StopRequestedError, UserError
from nnlo_lib.core.file_access import refuse_unwritable
from nnlo_lib.core.installation import PROFILES, SNAKEFILE
from nnlo_lib.core.logging_setup import get_logger, write_stderr
from nnlo_lib.core.text_format import duration_text, metrics_text, number, table_lines
from nnlo_lib.launch.attempt import notify
from nnlo_lib.launch.fork_server import can_fork, start_fork_server
from nnlo_lib.train.task import prepare_store
from nnlo_lib.workflow.outcome import describe_failures, divide_jobs, examine
from nnlo_lib.workflow.plan import Plan

logger = get_logger(__name__)
SNAKEFILES = (Path("Snakefile"), Path("workflow/Snakefile"))  # where Snakemake looks for one
OWN_OPTIONS = [
    "--configfile",
    "--configfiles",
    "--directory",
    "-d",
    "--logger",
    "--profile",
    "--snakefile",
    "-s",
]
LINE_LENGTH = 100  # of sentences on the terminal
# With -P, no file of the working directory replaces a module; Snakemake prints a traceback of Ctrl-C before its first job.
# The fork server imports while Snakemake starts.
# Snakemake's end would wait a second for its timer of submissions per second.
# Snakemake stops its jobs after SIGINT only: a terminal that closes has to interrupt it, too, and `interrupt` also where a
# shell script, which lets commands in the background ignore SIGINT, has started it.
SNAKEMAKE = f"""\
import signal, sys, threading
try:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    if {{can_fork}}:
        from nnlo_lib.launch.fork_server import fork_server_of_jobs
        fork_server_of_jobs()
    from snakemake.cli import main
    main()
except KeyboardInterrupt:
    sys.exit({EXIT_STOPPED})
finally:
    for each in threading.enumerate():
        if isinstance(each, threading.Timer):
            each.cancel()
"""
EXPERIMENT_FILE = Path("config/config.yaml")
EXPERIMENT = """\
name: quickstart                                  # results go to results/quickstart/
data: digits                                      # or {dataset: mine, source: mine.csv, reader: {name: table, label: COLUMN}}
model: simplecnn                                  # or your own network: {name: my_model.py:build}
train: {epochs: 5, batch_size: 32, optimizer: {name: sgd, lr: 0.05, momentum: 0.9}}
runs: {one: {parallel: {ranks: 1}}, two: {parallel: {ranks: 2}}}
"""
OWN_SNAKEFILE = """\
# The workflow of the installed NNLO; rules of your own may follow.
from nnlo_lib.core.installation import SNAKEFILE

include: str(SNAKEFILE)


rule experiment:
    default_target: True
    input:
        rules.all.input,
"""


def write_folder(folder: Path) -> list[Path]:
    """Write an experiment, the profiles and a Snakefile, so that `snakemake --profile slurm` works; return the new files.

    Raises UserError, before anything is written, if one of the files exists, and if the folder cannot be written.
    """
    profiles = {name: folder / name / "config.yaml" for name in ("local", "slurm", "lsf")}
    texts = {folder / EXPERIMENT_FILE: EXPERIMENT, folder / "Snakefile": OWN_SNAKEFILE}
    texts |= {path: (PROFILES / name / "config.yaml").read_text() for name, path in profiles.items()}
    taken = (path.parent if path.parent.is_file() else path for path in texts)
    if present := [str(path) for path in taken if path.exists()]:
        raise UserError(f"{', '.join(present)}: would be overwritten; pass a new folder: nnlo init FOLDER")
    for path, text in texts.items():
        with atomic_write(path) as part:
            part.write_text(text)
    return list(texts)


def run_experiment(experiment: Experiment, file: str, profile: str, options: Sequence[str]) -> int:
    """Run all jobs of an experiment by Snakemake, print the comparison and the path of the page; return the exit status.

    Raises UserError for an unknown profile and for options that replace those of this command, and StopRequestedError
    after a stop signal, when the jobs have saved.
    """
    for word in options:
        if word.partition("=")[0] in OWN_OPTIONS:
            raise UserError(
                f"--snakemake: nnlo all sets {word} itself; remove it, and use nnlo all FILE --profile NAME"
            )
    # Not data/, in which stores of other people may be read.
    Plan.of(experiment).refuse_unwritable()
    refuse_unwritable(Path(".snakemake/locks"), Path(".snakemake/metadata"))
    # The options come first, because the values of Snakemake's own may be a list, to which a target would be added.
    program = SNAKEMAKE.format(can_fork=profile == "local" and can_fork(experiment))
    command = [
        sys.executable, "-P", "-c", program, *options, "--snakefile", str(_snakefile()), "--profile", _profile(profile),
        "--configfile", file, "--logger", "nnlo",
    ]  # fmt: skip
    # The output of the jobs is in their logs.
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=_environment()) as snakemake:
        try:
            status = snakemake.wait()
        except StopRequestedError as stop:
            # Ctrl-C reaches Snakemake and its jobs by itself, other signals do not.
            if "SIGINT" not in str(stop):
                interrupt(snakemake.pid)
            snakemake.wait()
            raise StopRequestedError("stopped; the same command resumes") from None
    if status < 0:
        killed = signal.Signals(-status)
        cause = ", often because memory was short" if killed is signal.SIGKILL else ""
        logger.error(
            f"Snakemake was killed by {killed.name}{cause}; jobs that run may continue, and the same command resumes"
        )
        return 128 - status
    if status == 0:
        finished, unfinished = divide_jobs(Plan.of(experiment))
        if unfinished:  # with options such as --dry-run or --until
            print(
                f"trainings without results: {len(unfinished)} of {len(finished + unfinished)}; no comparison"
            )
            return status
        print("\n".join(_comparison_lines(finished)))
        print(ExperimentPaths(experiment.name).page)
    return status


def train_all(experiment: Experiment, file: str, launcher: str) -> int:
    """Train and evaluate all jobs one after the other, write summary and page and print the comparison; return the exit status.

    The files are those of the workflow. Ranks are forks of a process that has imported torch. A job that fails does not stop the
    others; the status is then 1.

    Args:
        experiment: the checked experiment, without a search.
        file: path of the experiment file, for the page.
        launcher: command that starts the MPI ranks.

    Raises:
        UserError: if another command runs the experiment, its data cannot be prepared, or a training would replace a longer one.
        StopRequestedError: after a stop signal or at a time limit, when the ranks have saved.
    """
    # Here, because Snakemake's start would wait for them.
    from nnlo_lib.preflight.preflight import check_experiment
    from nnlo_lib.report.page import write_page
    from nnlo_lib.report.statistics.comparison_text import compare_all, write_comparisons
    from nnlo_lib.report.tables import load_jobs, summarize, write_summary
    from nnlo_lib.workflow.single_run import train_and_evaluate

    plan, paths = Plan.of(experiment), ExperimentPaths(experiment.name)
    plan.refuse_unwritable()
    plan.lease_experiment()
    examine(plan)
    plan.write_configs()
    if not all(store.manifest.exists() for store in plan.stores.values()):
        for store in plan.stores.values():
            prepare_store(store)
        check_experiment(experiment)  # again, because shapes and numbers of samples may have been unknown
    if can_fork(experiment):
        sys.executable = str(start_fork_server() / "python")
    started = time.monotonic()
    _, unfinished = divide_jobs(plan)
    left = [job for job in plan.jobs if str(paths.job(job).folder) in unfinished]
    for done, job in enumerate(left, 1):
        log, start, error = Path("logs", experiment.name, job.path, "train.log"), time.monotonic(), ""
        try:
            with _output_in(log):
                outcome = train_and_evaluate(experiment, job.run, job.seed, job.fold, launcher)[1]
            if outcome.exit_status == EXIT_STOPPED:
                raise StopRequestedError
            error = (outcome.error or outcome.reason) if outcome.exit_status else ""
        except StopRequestedError:
            notify(experiment.observe.notify, "stopped", f"{experiment.name}: stopped", paths.folder)
            raise StopRequestedError("stopped; the same command resumes") from None
        except UserError as refusal:
            error = str(refusal)
        result = (
            f"failed: {error} (log: {log})"
            if error
            else metrics_text(load_json(paths.job(job).evaluation.read_text()))
        )
        wait = (time.monotonic() - started) / done * (len(left) - done)
        parts = [
            job.path,
            result,
            f"{number(time.monotonic() - start, 2)} s",
            f"about {duration_text(wait)} left" if wait else "",
        ]
        write_stderr(f"{time.strftime('%H:%M:%S')}  {'  '.join(filter(None, parts))}\n")
    finished, unfinished = divide_jobs(plan)
    if finished:
        jobs = load_jobs(map(Path, finished))
        table = summarize(jobs)
        write_comparisons(compare_all(table, jobs), paths.comparisons)
        write_summary(table, paths.summary)
        write_page(
            paths.page,
            Path(file),
            paths.summary,
            list(map(Path, finished)),
            failed=dict.fromkeys(map(Path, unfinished), ""),
        )
    event = "failed" if unfinished else "finished"
    notify(experiment.observe.notify, event, f"{experiment.name}: {event}", paths.folder)
    if unfinished:
        write_stderr(f"{describe_failures(unfinished, str(paths.page) if finished else '')}\n")
        return 1
    print("\n".join(_comparison_lines(finished)))
    print(paths.page)
    return 0


@contextmanager
def _output_in(log: Path) -> Iterator[None]:
    """Append to a file what this process and its ranks print."""
    log.parent.mkdir(parents=True, exist_ok=True)
    kept = {number: os.dup(number) for number in (1, 2)}
    with log.open("ab") as file:
        for number in kept:
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for number, copy in kept.items():
            (sys.stdout, sys.stderr)[number - 1].flush()
            os.dup2(copy, number)
            os.close(copy)


def _environment() -> dict[str, str]:
    """Return the environment with a TMPDIR that can be written, which Snakemake needs for each choice of jobs."""
    given = os.environ.get("TMPDIR", "")
    try:
        usable = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise UserError(f"TMPDIR: {error.strerror}; free space, or set TMPDIR to another folder") from error
    if given and Path(given) != Path(usable):
        logger.warning(f"TMPDIR: {given} is missing, full or read-only; {usable} is used")
    return os.environ | {"TMPDIR": usable}


def interrupt(pid: int) -> None:
    """Send SIGINT to a process and those below it, as Ctrl-C does; Snakemake alone would wait for the end of its trainings."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                # The fork server, in a session of its own, gets no Ctrl-C either.
                if os.getpgid(process.pid) == os.getpgrp():
                    process.send_signal(signal.SIGINT)


def _snakefile() -> Path:
    """Return the Snakefile of the working directory if it runs NNLO, else NNLO's own."""
    found = next((path for path in SNAKEFILES if path.is_file()), SNAKEFILE)
    try:
        if found == SNAKEFILE or "nnlo" in found.read_text(errors="replace").lower():
            return found
    except OSError as error:
        raise UserError(f"cannot read {found}: {error.strerror}") from error
    logger.warning(
        f"{found}: not used, because it is of another workflow, without the word nnlo; the lines that add NNLO are in the "
        "Snakefile of `nnlo init FOLDER`"
    )
    return SNAKEFILE


def _profile(name: str) -> str:
    """Return the folder of a profile of the working directory, of the user or of NNLO, in this order."""
    places = (Path(name), Path.home() / ".config" / "snakemake" / name, PROFILES / name)
    for place in places:
        if any(place.glob("config*.yaml")):
            return str(place)
    known = ", ".join(sorted(path.name for path in PROFILES.iterdir()))
    raise UserError(f"--profile: {name} is neither a folder with config.yaml nor one of {known}")


def _comparison_lines(folders: Sequence[str]) -> Iterator[str]:
    """Yield the page's table of the runs and its first paragraph, from the folders of the finished jobs."""
    from nnlo_lib.report.quantities import time_base_of
    from nnlo_lib.report.sections.comparison import comparison_columns
    from nnlo_lib.report.sections.headline import headline
    from nnlo_lib.report.statistics.comparison_text import compare_all
    from nnlo_lib.report.tables import load_jobs, summarize

    jobs = load_jobs(map(Path, folders))
    table, clock = summarize(jobs), time_base_of(jobs)
    comparisons = compare_all(table, jobs)
    columns = comparison_columns(table, clock, comparisons)
    marked = {
        run: [f"{cells[run].text}{' *' if cells[run].best else ''}" for _, cells in columns]
        for run in columns[0][1]
    }
    headings = ("run", *(heading for heading, _ in columns))
    yield from table_lines([headings, *((run, *texts) for run, texts in marked.items())])
    if any(cell.best for _, cells in columns for cell in cells.values()):
        yield "* better than every other run"
    yield from textwrap.wrap(headline(table, clock, comparisons, jobs).striptags(), LINE_LENGTH)
