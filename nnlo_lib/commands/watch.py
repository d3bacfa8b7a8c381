"""`nnlo watch`, `status`, `report` and `doctor`: trainings that run, the page of what there is, and the site."""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from nnlo_lib.commands.arguments import add_launcher_argument

WATCH_HELP = "show the trainings below a folder while they run: state, progress, time left"
WATCH_EXAMPLE = "nnlo watch results/mine"
STATUS_HELP = "print the trainings below a folder once, as nnlo watch --once"
STATUS_EXAMPLE = "nnlo status results/mine"
REPORT_HELP = "write the page of an experiment that runs, has failed or is finished, from its results so far"
REPORT_EXAMPLE = "nnlo report results/mine"
DOCTOR_HELP = "check what this machine, or a site's Slurm or LSF, offers; status 1: a training cannot start"
DOCTOR_EXAMPLE = "nnlo doctor --profile slurm"


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"expected 0.1 to 86400 seconds, got {text}")
    return seconds


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", nargs="?", type=Path,
        help="results/<experiment>, or a folder above or below; default: results",
    )  # fmt: skip


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder, the form of the output and the interval."""
    _add_folder(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--once", action="store_true", help="print the table once")
    form.add_argument("--json", action="store_true", help="print the values once, as JSON")
    # Of earlier versions.
    form.add_argument("--html", help=argparse.SUPPRESS)
    parser.add_argument(
        "--every", type=_seconds, default=5.0, metavar="SECONDS",
        help="interval of the screen; the batch system is asked once a minute; default: %(default)g",
    )  # fmt: skip


def run_watch(options: argparse.Namespace) -> None:
    """Print the trainings once, or show a table until a signal ends it; without a terminal, print them once."""
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

    # Whoever only looks has nothing to run again.
    with suppress(StopRequestedError):
        watch_trainings(folder, options.every, Console())


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder."""
    _add_folder(parser)
    parser.set_defaults(once=True, json=False, html=None)


run_status = run_watch


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder, the experiment file and the page."""
    parser.add_argument("folder", type=Path, help="results/<experiment>")
    parser.add_argument(
        "--experiment", type=Path, metavar="FILE", help="experiment file, which the page then shows"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="page to write; default: report.html in the folder"
    )


def run_report(options: argparse.Namespace) -> None:
    """Write the page and print its path."""
    from nnlo_lib.workflow.live_view import report_folder

    print(report_folder(options.folder, options.experiment, options.output))


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the profile, the test job and the launcher."""
    parser.add_argument("--profile", choices=["slurm", "lsf"], help="also check this site's batch system")
    parser.add_argument(
        "--job",
        action="store_true",
        help="with --profile slurm, also run a job of two ranks and wait for its end",
    )
    add_launcher_argument(parser)


def run_doctor(options: argparse.Namespace) -> int:
    """Print a line for each finding; return 1 if something prevents trainings."""
    from nnlo_lib.reliability.site_check import print_findings

    return print_findings(options.launcher, options.profile, options.job)
