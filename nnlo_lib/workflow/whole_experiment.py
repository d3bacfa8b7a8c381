"""`nnlo all` and `nnlo init`: an experiment from its file to its page by one command, in any folder."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.errors import StopRequestedError, UserError
from nnlo_lib.core.installation import PROFILES, SNAKEFILE
from nnlo_lib.core.text_format import table_lines
from nnlo_lib.report.quantities import time_base_of
from nnlo_lib.report.sections.comparison import comparison_columns
from nnlo_lib.report.sections.headline import headline
from nnlo_lib.report.statistics.comparison_text import compare_all
from nnlo_lib.report.tables import load_jobs, summarize
from nnlo_lib.workflow.outcome import divide_jobs
from nnlo_lib.workflow.plan import Plan

SNAKEFILES = (Path("Snakefile"), Path("workflow/Snakefile"))  # where Snakemake looks for one
LINE_LENGTH = 100  # of sentences on the terminal
EXPERIMENT_FILE = Path("config/config.yaml")
EXPERIMENT = """\
name: quickstart                                  # results go to results/quickstart/
data: digits                                      # or your own files: docs/guides/data.md
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

    Raises UserError, before anything is written, if one of the files exists.
    """
    profiles = {name: folder / name / "config.yaml" for name in ("local", "slurm", "lsf")}
    texts = {folder / EXPERIMENT_FILE: EXPERIMENT, folder / "Snakefile": OWN_SNAKEFILE}
    texts |= {path: (PROFILES / name / "config.yaml").read_text() for name, path in profiles.items()}
    if present := [str(path) for path in texts if path.exists()]:
        raise UserError(f"{', '.join(present)}: would be overwritten; pass a new folder: nnlo init FOLDER")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(texts)


def run_experiment(experiment: Experiment, file: str, profile: str, options: Sequence[str]) -> int:
    """Run all jobs of an experiment by Snakemake, print the comparison and the path of the page; return the exit status.

    Raises UserError for an unknown profile, and StopRequestedError after Ctrl-C or SIGTERM, when the jobs have saved.
    """
    snakefile = next((path for path in SNAKEFILES if path.is_file()), SNAKEFILE)
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "--profile", _profile(profile),
        "--configfile", file, "--logger", "nnlo", *options,
    ]  # fmt: skip
    # The output of the jobs is in their logs.
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as snakemake:
        try:
            status = snakemake.wait()
        except StopRequestedError as stop:
            # Ctrl-C reaches Snakemake and its jobs by itself, other signals do not.
            if "SIGINT" not in str(stop):
                snakemake.send_signal(signal.SIGINT)
            snakemake.wait()
            raise StopRequestedError("stopped; the same command resumes") from None
    if status == 0:
        print("\n".join(_comparison_lines(divide_jobs(Plan.of(experiment))[0])))
        print(ExperimentPaths(experiment.name).page)
    return status


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
    jobs = load_jobs(map(Path, folders))
    table, clock = summarize(jobs), time_base_of(jobs)
    comparisons = compare_all(table, jobs)
    columns = comparison_columns(table, clock, comparisons)
    yield from table_lines(
        [
            ("run", *(column.heading for column in columns)),
            *(
                (
                    run,
                    *(
                        f"{column.cells[run].text}{' *' if column.cells[run].best else ''}"
                        for column in columns
                    ),
                )
                for run in columns[0].cells
            ),
        ]
    )
    if any(cell.best for column in columns for cell in column.cells.values()):
        yield "* better than every other run"
    yield from textwrap.wrap(headline(table, clock, comparisons).striptags(), LINE_LENGTH)
