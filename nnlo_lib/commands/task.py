"""`nnlo task <step>`: the steps that the rules of the workflow run."""

import argparse
import json
from pathlib import Path

from nnlo_lib.commands.arguments import add_commands, add_launcher_argument
from nnlo_lib.core.secrets import reveal
from nnlo_lib.core.text_format import plural

TASK_HELP = "run one step of the workflow, as its rules do"
TASK_EXAMPLE = "nnlo task train --help"
STEPS = ("fetch", "convert", "train", "aggregate", "report", "search-results", "trial")
FETCH_HELP = "fetch the original files of a data set and verify their checksums"
CONVERT_HELP = "convert a fetched data set to a store: shards and a manifest"
TRAIN_HELP = "train one job of an experiment, and evaluate its model on the test split"
AGGREGATE_HELP = "write the results of all jobs of an experiment, and the differences between runs, as tables"
REPORT_HELP = "write the results of an experiment as one self-contained HTML page"
SEARCH_RESULTS_HELP = "write the table of a search's trials, or the run that retrains its best trial"
TRIAL_HELP = "train a fold task: one fold of one trial up to an epoch"
# Of nnlo_lib.launch.stop_request, which `nnlo --help` does not import.
PREEMPTION_POLICIES = ("requeue", "exit")


def add_task_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each step."""
    add_commands(parser, dict.fromkeys(STEPS, "task"))


def run_task(_: argparse.Namespace) -> None:
    """Do nothing: each step has its own `run_<step>`."""


def add_fetch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the data set, its source and its target folder."""
    parser.add_argument(
        "--dataset", required=True, help="name of the data set in the catalog, such as mnist, or of your own"
    )
    parser.add_argument(
        "--target", required=True, type=Path, help="folder for the files, such as data/mnist/raw"
    )
    parser.add_argument(
        "--source", help="folder, archive or URL of the files; default: the mirrors or the installed package"
    )
    parser.add_argument(
        "--reader", type=_reader_name, help='reader of your own files, such as {"name": "folder"}'
    )


def _reader_name(text: str) -> str:
    """Return the name in the JSON object that describes a reader."""
    reader = json.loads(reveal(text))
    if not isinstance(reader, dict) or not isinstance(reader.get("name"), str):
        raise argparse.ArgumentTypeError(
            f'{text} has no name of a reader; pass JSON such as {{"name": "folder"}}'
        )
    return str(reader["name"])


def run_fetch(options: argparse.Namespace) -> None:
    """Fetch the missing files."""
    from nnlo_lib.data.catalog import CATALOG, find_dataset, user_dataset
    from nnlo_lib.data.fetch.fetch import fetch

    is_own = options.reader and options.dataset not in CATALOG
    dataset = user_dataset(options.dataset, options.reader) if is_own else find_dataset(options.dataset)
    fetched = fetch(dataset, options.target, options.source and reveal(options.source))
    print(
        f"{dataset.name}: {plural(len(fetched.files), 'file') if fetched.files else 'all files'} in {fetched.path}"
    )


def add_convert_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the data set, its folders and its shards."""
    parser.add_argument(
        "--dataset", required=True, help="name of the data set in the catalog, such as mnist, or of your own"
    )
    parser.add_argument(
        "--raw", required=True, type=Path,
        help="folder of the fetched or your own files, such as data/mnist/raw",
    )  # fmt: skip
    parser.add_argument(
        "--target", required=True, type=Path, help="folder of the store, such as data/mnist/hdf5-0a1b2c3d4e5f"
    )
    parser.add_argument(
        "--format", default="hdf5", choices=("hdf5", "npz"), help="file format; default: %(default)s"
    )
    parser.add_argument(
        "--shard-size", default=10_000, type=int, help="samples per shard; default: %(default)s"
    )
    parser.add_argument(
        "--reader",
        type=lambda text: json.loads(reveal(text)),
        help='reader of your own files, such as {"name": "folder"}',
    )
    parser.add_argument(
        "--processes", default=1, type=int, help="shards to convert in parallel; default: %(default)s"
    )
    parser.add_argument(
        "--key", default="", help="key in the name of the store, with which the files must agree"
    )
    parser.add_argument("--shard", help="convert only this shard and write no manifest")


def run_convert(options: argparse.Namespace) -> None:
    """Convert the missing shards and write the manifest; with --shard, convert only that shard."""
    from nnlo_lib.core.file_lock import exclusive_lock
    from nnlo_lib.data.store.convert import LOCK_FILE, LOCK_TIMEOUT_SECONDS, Conversion, convert
    from nnlo_lib.data.store_settings import StoreSettings

    settings = StoreSettings(
        options.dataset, reader=options.reader or {}, format=options.format, shard_size=options.shard_size
    )
    conversion = Conversion(settings, options.raw, options.target, options.key)
    if options.shard:
        lock, doing = options.target / LOCK_FILE, f"converting to {options.target}"
        with exclusive_lock(lock, doing, LOCK_TIMEOUT_SECONDS, shared=True):
            conversion.convert_unit(conversion.layout, conversion.unit(options.shard))
        return
    manifest = convert(conversion, options.processes)
    counts = ", ".join(f"{part.samples} {name}" for name, part in manifest.splits.items())
    print(f"{manifest.dataset} as {manifest.format}: {counts} samples in {manifest.folder}")


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the run, its data, its folder and its launcher."""
    parser.add_argument("--config", type=Path, required=True, help="config.json of the run")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of the store")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the job's results")
    parser.add_argument("--seed", type=int, required=True, help="random seed of the job")
    parser.add_argument("--fold", type=int, help="number of the job's fold, from 0")
    _add_launch_arguments(parser, attempt=1)


def run_train(options: argparse.Namespace) -> int:
    """Start the ranks, wait for them, evaluate the model and return the exit status."""
    from nnlo_lib.config import Run
    from nnlo_lib.launch.attempt import LaunchOptions, complete_task
    from nnlo_lib.train.task import Task

    settings = json.loads(options.config.read_text())
    task = Task(
        settings["experiment"], settings["name"], Run.model_validate(settings["run"]), options.seed, options.fold,
        settings["folds"], options.manifest, options.folder,
    )  # fmt: skip
    launch_options = LaunchOptions(options.launcher, options.minutes, options.attempt, options.on_preemption)
    return complete_task(task, launch_options).exit_status


def add_trial_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the search, the fold task and the launcher."""
    parser.add_argument("folder", type=Path, help="folder of the search: results/<experiment>/search")
    parser.add_argument("trial", type=int, help="number of the trial, from 0")
    parser.add_argument("fold", type=int, help="number of the fold, from 0")
    parser.add_argument("epochs", type=int, help="last epoch to train")
    _add_launch_arguments(parser, attempt=None)


def run_trial(options: argparse.Namespace) -> int:
    """Train the fold task; return the exit status.

    It is 0 if the result was written, 75 if the ranks saved and stopped, 1 if the task can be tried again, and
    2 if the disk is full.
    """
    from nnlo_lib.executors.trial_job import train_trial
    from nnlo_lib.launch.attempt import LaunchOptions
    from nnlo_lib.search.study.trial import FoldTask

    fold_task = FoldTask(options.trial, options.fold, options.epochs)
    launch_options = LaunchOptions(
        options.launcher, options.minutes, options.attempt, options.on_preemption, wait_for_lease=True
    )
    return train_trial(options.folder, fold_task, launch_options)


def _add_launch_arguments(parser: argparse.ArgumentParser, attempt: int | None) -> None:
    parser.add_argument(
        "--minutes", type=float, help="time limit in minutes; in a batch job the ranks save before it"
    )
    add_launcher_argument(parser)
    parser.add_argument("--attempt", type=int, default=attempt, help="number of Snakemake's attempt, from 1")
    parser.add_argument(
        "--on-preemption", type=_preemption_policy, choices=PREEMPTION_POLICIES, default="exit",
        help="action in a batch job after the ranks have saved: see profiles/slurm; default: %(default)s",
    )  # fmt: skip


def _preemption_policy(text: str) -> str:
    from nnlo_lib.launch.stop_request import parse_preemption_policy

    return parse_preemption_policy(text)


def add_aggregate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders of the jobs and the path of the table."""
    parser.add_argument(
        "--output", type=Path, required=True, help="table to write: results/<experiment>/summary.csv"
    )
    parser.add_argument(
        "--comparisons", type=Path, help="table of the differences between runs to write: comparisons.csv"
    )
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="JOB_FOLDER",
        help="folder of a job: results/<experiment>/<run>/seed-<s>[/fold-<k>]",
    )  # fmt: skip


def run_aggregate(options: argparse.Namespace) -> None:
    """Write one row per run, seed and fold as CSV, and one row per metric and pair of runs."""
    from nnlo_lib.report.statistics.comparison_text import compare_all, write_comparisons
    from nnlo_lib.report.tables import load_jobs, summarize, write_summary

    jobs = load_jobs(options.folders)
    table = summarize(jobs)
    if options.comparisons:
        write_comparisons(compare_all(table, jobs), options.comparisons)
    write_summary(table, options.output)


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the page and its input files."""
    parser.add_argument(
        "--output", type=Path, required=True, help="page to write: results/<experiment>/report.html"
    )
    parser.add_argument("--experiment-file", type=Path, help="experiment file (YAML)")
    parser.add_argument("--summary", type=Path, help="summary.csv of `nnlo task aggregate`")
    parser.add_argument(
        "--search", type=Path, help="results/<experiment>/search, if the experiment has a search"
    )
    parser.add_argument(
        "--failed", type=Path, action="append", default=[], metavar="JOB_FOLDER",
        help="folder of a job without results, which the page names; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "folders", type=Path, nargs="*", metavar="JOB_FOLDER",
        help="folder of a job: results/<experiment>/<run>/seed-<s>[/fold-<k>]",
    )  # fmt: skip
    # `run` has only the options, and argparse cannot express the two valid combinations.
    parser.set_defaults(error=parser.error)


def run_report(options: argparse.Namespace) -> None:
    """Write the page; with --search and without job folders, the page shows only the search."""
    from nnlo_lib.report.page import write_page, write_search_page

    if options.search and not options.folders:
        write_search_page(options.output, options.search)
    elif options.folders and options.summary and options.experiment_file:
        write_page(
            options.output,
            options.experiment_file,
            options.summary,
            options.folders,
            options.search,
            dict.fromkeys(options.failed, ""),
        )
    else:
        options.error(
            "pass either --search alone, or --experiment-file, --summary and at least one JOB_FOLDER"
        )


def add_search_results_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the folder of the search and the files to write."""
    parser.add_argument("--folder", type=Path, required=True, help="results/<experiment>/search")
    parser.add_argument("--table", type=Path, help="trials.csv to write")
    parser.add_argument(
        "--best", action="store_true", help="write best.yaml, and best/config.json beside the search's folder"
    )


def run_search_results(options: argparse.Namespace) -> None:
    """Write the requested files."""
    from nnlo_lib.config.paths import BEST_RUN
    from nnlo_lib.launch.former_results import set_aside
    from nnlo_lib.search.best import write_table
    from nnlo_lib.search.study.storage import load_study
    from nnlo_lib.workflow.outcome import task_of
    from nnlo_lib.workflow.plan import Plan
    from nnlo_lib.workflow.search_plan import SearchPlan

    record = load_study(options.folder)
    if options.table:
        write_table(options.table, record)
    if options.best:
        SearchPlan(record.experiment, True).write_best()
        plan = Plan.of(record.experiment, leads=False)
        for job in plan.evaluated_jobs:
            if job.run == BEST_RUN:
                set_aside(task_of(plan, job))
