"""`nnlo task <step>`: the steps that the rules of the workflow run."""

import argparse
import json
from pathlib import Path

from nnlo_lib.commands.arguments import LAUNCHER, Option, command, option
from nnlo_lib.core.secrets import reveal
from nnlo_lib.core.text_format import plural

STEPS = ("fetch", "convert", "train", "aggregate", "report", "search-results", "trial")
PREEMPTION_POLICIES = ("requeue", "exit")  # PreemptionPolicy


def _reader_name(text: str) -> str:
    """Return the name in the JSON object that describes a reader."""
    reader = json.loads(reveal(text))
    if not isinstance(reader, dict) or not isinstance(reader.get("name"), str):
        raise argparse.ArgumentTypeError(
            f'{text} has no name of a reader; pass JSON such as {{"name": "folder"}}'
        )
    return str(reader["name"])


def preemption_policy(text: str) -> str:
    """Return the policy; `wait`, a policy of version 0.2 in profiles of users, is `requeue`."""
    return "requeue" if text == "wait" else text


def launch_options(attempt: int | None) -> tuple[Option, ...]:
    """Return the options of a step that starts ranks; `attempt`: the default of --attempt."""
    return (
        option("--minutes", "time limit in minutes; in a batch job the ranks save before it", type=float),
        LAUNCHER,
        option("--attempt", "number of Snakemake's attempt, from 1", type=int, default=attempt),
        option(
            "--on-preemption", "action in a batch job after the ranks have saved: see profiles/slurm; default: %(default)s",
            type=preemption_policy, choices=PREEMPTION_POLICIES, default="exit",
        ),
    )  # fmt: skip


DATASET = option(
    "--dataset", "name of the data set in the catalog, such as mnist, or of your own", required=True
)


def job_folders(count: str) -> Option:
    """Return the argument for the folders of jobs: at least one (`+`) or any number (`*`)."""
    text = "folder of a job: results/<experiment>/<run>/seed-<s>[/fold-<k>]"
    return option("folders", text, type=Path, nargs=count, metavar="JOB_FOLDER")


@command("nnlo task train --help", steps=STEPS)
def run_task(_: argparse.Namespace) -> None:
    """Run one step of the workflow, as its rules do."""


@command(
    "",
    DATASET,
    option("--target", "folder for the files, such as data/mnist/raw", required=True, type=Path),
    option("--source", "folder, archive or URL of the files; default: the mirrors or the installed package"),
    option("--reader", 'reader of your own files, such as {"name": "folder"}', type=_reader_name),
)
def run_fetch(options: argparse.Namespace) -> None:
    """Fetch the original files of a data set and verify their checksums."""
    from nnlo_lib.data.catalog import CATALOG, DatasetSpec, find_dataset
    from nnlo_lib.data.fetch.fetch import fetch

    is_own = options.reader and options.dataset not in CATALOG
    dataset = (
        DatasetSpec(name=options.dataset, reader=options.reader) if is_own else find_dataset(options.dataset)
    )
    fetched = fetch(dataset, options.target, options.source and reveal(options.source))
    print(
        f"{dataset.name}: {plural(len(fetched.files), 'file') if fetched.files else 'all files'} in {fetched.path}"
    )


@command(
    "",
    DATASET,
    option(
        "--raw", "folder of the fetched or your own files, such as data/mnist/raw", required=True, type=Path
    ),
    option("--target", "folder of the store, such as data/mnist/hdf5-0a1b2c3d4e5f", required=True, type=Path),
    option("--format", "file format; default: %(default)s", default="hdf5", choices=("hdf5", "npz")),
    option("--shard-size", "samples per shard; default: %(default)s", default=10_000, type=int),
    option(
        "--reader",
        'reader of your own files, such as {"name": "folder"}',
        type=lambda text: json.loads(reveal(text)),
    ),
    option("--processes", "shards to convert in parallel; default: %(default)s", default=1, type=int),
    option("--key", "key in the name of the store, with which the files must agree", default=""),
    option("--shard", "convert only this shard and write no manifest"),
)
def run_convert(options: argparse.Namespace) -> None:
    """Convert a fetched data set to a store: shards and a manifest."""
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


@command(
    "",
    option("--config", "config.json of the run", type=Path, required=True),
    option("--manifest", "manifest.json of the store", type=Path, required=True),
    option("--folder", "folder of the job's results", type=Path, required=True),
    option("--seed", "random seed of the job", type=int, required=True),
    option("--fold", "number of the job's fold, from 0", type=int),
    *launch_options(attempt=1),
)
def run_train(options: argparse.Namespace) -> int:
    """Train one job of an experiment, and evaluate its model on the test split."""
    from nnlo_lib.config import Run
    from nnlo_lib.launch.attempt import LaunchOptions, complete_task
    from nnlo_lib.train.task import Task

    settings = json.loads(options.config.read_text())
    task = Task(
        settings["experiment"],
        settings["name"],
        Run.model_validate(settings["run"]),
        options.seed,
        options.fold,
        settings["folds"],
        options.manifest,
        options.folder,
    )
    how = LaunchOptions(options.launcher, options.minutes, options.attempt, options.on_preemption)
    return complete_task(task, how).exit_status


@command(
    "",
    option("folder", "folder of the search: results/<experiment>/search", type=Path),
    option(
        "numbers",
        "number of a trial and of its fold, from 0, and the last epoch to train, of each fold task",
        type=int,
        nargs="+",
    ),
    *launch_options(attempt=None),
)
def run_trial(options: argparse.Namespace) -> int:
    """Train fold tasks one after another: each one fold of one trial up to an epoch.

    The status is 0 with all results, 75 if the ranks saved and stopped, 1 to try again, and 2 if the disk is full.
    """
    from nnlo_lib.executors.trial_job import train_trials
    from nnlo_lib.launch.attempt import LaunchOptions
    from nnlo_lib.search.study.trial import FoldTask

    if len(numbers := options.numbers) % 3:
        options.error("pass three numbers for each fold task: trial, fold and epochs")
    fold_tasks = [FoldTask(*numbers[start : start + 3]) for start in range(0, len(numbers), 3)]
    how = LaunchOptions(
        options.launcher, options.minutes, options.attempt, options.on_preemption, wait_for_lease=True
    )
    return train_trials(options.folder, fold_tasks, how)


@command(
    "",
    option("--output", "table to write: results/<experiment>/summary.csv", type=Path, required=True),
    option("--comparisons", "table of the differences between runs to write: comparisons.csv", type=Path),
    job_folders("+"),
)
def run_aggregate(options: argparse.Namespace) -> None:
    """Write the results of all jobs of an experiment, and the differences between runs, as tables."""
    from nnlo_lib.report.statistics.comparison_text import compare_all, write_comparisons
    from nnlo_lib.report.tables import load_jobs, summarize, write_summary

    jobs = load_jobs(options.folders)
    table = summarize(jobs)
    if options.comparisons:
        write_comparisons(compare_all(table, jobs), options.comparisons)
    write_summary(table, options.output)


@command(
    "",
    option("--output", "page to write: results/<experiment>/report.html", type=Path, required=True),
    option("--experiment-file", "experiment file (YAML)", type=Path),
    option("--summary", "summary.csv of `nnlo task aggregate`", type=Path),
    option("--search", "results/<experiment>/search, if the experiment has a search", type=Path),
    option(
        "--failed",
        "folder of a job without results, which the page names; may be repeated",
        type=Path,
        action="append",
        default=[],
        metavar="JOB_FOLDER",
    ),
    job_folders("*"),
)
def run_report(options: argparse.Namespace) -> None:
    """Write the results of an experiment as one self-contained HTML page."""
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


@command(
    "",
    option("--folder", "results/<experiment>/search", type=Path, required=True),
    option("--table", "trials.csv to write", type=Path),
    option("--best", "write best.yaml, and best/config.json beside the search's folder", action="store_true"),
)
def run_search_results(options: argparse.Namespace) -> None:
    """Write the table of a search's trials, or the run that retrains its best trial."""
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
