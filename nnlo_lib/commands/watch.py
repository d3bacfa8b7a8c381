"""`nnlo watch`, `status`, `report` and `doctor`: trainings that run, the page of what there is, and the site."""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from nnlo_lib.commands.arguments import LAUNCHER, command, option


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"expected 0.1 to 86400 seconds, got {text}")
    return seconds


FOLDER = option(
    "folder", "results/<experiment>, or a folder above or below; default: results", nargs="?", type=Path
)


@command(
    "nnlo watch results/mine",
    FOLDER,
    option("--once", "print the table once", action="store_true", is_form=True),
    option("--json", "print the values once, as JSON", action="store_true", is_form=True),
    option("--html", argparse.SUPPRESS, is_form=True),
    option(
        "--every",
        "interval of the screen; the batch system is asked once a minute; default: %(default)g",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
    ),
)
def run_watch(options: argparse.Namespace) -> None:
    """Show the trainings below a folder while they run: state, progress, time left."""
    from nnlo_lib.config.paths import RESULTS_FOLDER
    from nnlo_lib.core.errors import StopRequestedError, UserError
    from nnlo_lib.workflow.live_jobs import LiveJobs
    from nnlo_lib.workflow.live_view import as_json, as_text, watch_trainings

    folder = options.folder or RESULTS_FOLDER
    if options.html:
        raise UserError(
            f"--html: there is no such page any more; `nnlo report {folder}` writes the page of the results so far"
        )
    if options.json or options.once or not sys.stdout.isatty():
        print((as_json if options.json else as_text)(LiveJobs(folder).settled_look()))
        return
    from rich.console import Console

    # A look has nothing to run again.
    with suppress(StopRequestedError):
        watch_trainings(folder, options.every, Console())


@command("nnlo status results/mine", FOLDER)
def run_status(options: argparse.Namespace) -> None:
    """Print the trainings below a folder once, as nnlo watch --once."""
    run_watch(argparse.Namespace(folder=options.folder, once=True, json=False, html=None))


@command(
    "nnlo report results/mine",
    option("folder", "results/<experiment>", type=Path),
    option("--experiment", "experiment file, which the page then shows", type=Path, metavar="FILE"),
    option("--output", "page to write; default: report.html in the folder", type=Path, metavar="FILE"),
)
def run_report(options: argparse.Namespace) -> None:
    """Write the page of an experiment that runs, has failed or is finished, from its results so far."""
    from nnlo_lib.workflow.live_view import report_folder

    print(report_folder(options.folder, options.experiment, options.output))


@command(
    "nnlo doctor --profile slurm",
    option("--profile", "also check this site's batch system", choices=["slurm", "lsf"]),
    option(
        "--job", "with --profile slurm, also run a job of two ranks and wait for its end", action="store_true"
    ),
    LAUNCHER,
)
def run_doctor(options: argparse.Namespace) -> int:
    """Check what this machine, or a site's Slurm or LSF, offers; status 1: a training cannot start."""
    from nnlo_lib.reliability.site_check import print_findings

    return print_findings(options.launcher, options.profile, options.job)
