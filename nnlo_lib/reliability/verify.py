"""All checks of `nnlo verify`: the files of each finished job, and the tables of whole experiments and searches.

A table is written again from the results, and compared row by row. Imports no torch; pandas only for a table.
"""

import csv
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from nnlo_lib.config.paths import SEARCH_FOLDER, ExperimentPaths, RunPaths, SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.reliability.file_checks import (
    check_attempts,
    check_checkpoints,
    check_code,
    check_dataset,
    check_evaluation,
    check_history,
    check_outputs,
    check_sample_ledger,
)
from nnlo_lib.reliability.findings import (
    Finding,
    failed,
    find_run_folders,
    load_finished_run,
    note,
    ok,
    reason_not_finished,
)
from nnlo_lib.reliability.reproduce import check_reproducibility
from nnlo_lib.state.finished_run import FinishedRun

SUMMARY, COMPARISONS = ExperimentPaths.summary.name, ExperimentPaths.comparisons.name
Row = dict[str, str]


def verify_runs(folders: Sequence[str], shards: bool) -> int:
    """Check all jobs in `folders` and print a line per finding; return 1 if a check failed, else 0.

    Args:
        folders: folders of jobs, or folders above them, with the tables of whole experiments.
        shards: verify every shard of the data too.

    Raises:
        UserError: after all checks, if jobs are not finished or their summary is damaged.
    """
    jobs = [job for folder in folders for job in find_run_folders(Path(folder))]
    unfinished, any_failed = [], False
    for folder in jobs:
        try:
            reason = reason_not_finished(folder)
            findings = [note(reason)] if reason else list(_run_checks(load_finished_run(folder), shards))
        except UserError as error:
            # One unfinished job must not hide the findings of the others.
            unfinished.append(str(error))
            continue
        print(folder, *findings, sep="\n", flush=True)
        any_failed |= any(finding.status == "FAILED" for finding in findings)
    for path in (path for folder in folders for path in find_experiment_files(Path(folder))):
        findings = list(check_experiment_file(path))
        print(path, *findings, sep="\n", flush=True)
        any_failed |= any(finding.status == "FAILED" for finding in findings)
    if unfinished:
        raise UserError("\n  ".join(unfinished))
    return int(any_failed)


def _run_checks(run: FinishedRun, shards: bool) -> Iterator[Finding]:
    """Yield the findings of all checks of a run; if `shards`, verify every shard of the data too."""
    yield from check_outputs(run)
    yield from check_evaluation(run)
    yield from check_checkpoints(run)
    yield from check_code(run)
    yield from check_history(run)
    yield from check_sample_ledger(run)
    yield from check_dataset(run, shards)
    yield from check_attempts(run)
    yield from check_reproducibility(run)


def find_experiment_files(folder: Path) -> list[Path]:
    """Return the tables of experiments and of searches at, below or directly above a folder."""
    patterns = [
        f"{above}{name}"
        for above in ("", "*/", f"{SEARCH_FOLDER}/", f"*/{SEARCH_FOLDER}/")
        for name in _WRITERS
    ]
    return sorted({path for pattern in patterns for path in folder.glob(pattern)})


def check_experiment_file(path: Path) -> Iterator[Finding]:
    """Check a file that `find_experiment_files` returned."""
    try:
        yield from _check_table(path)
    except (UserError, OSError, ValueError) as error:
        yield failed(f"{path.name}: it cannot be compared with the results: {error}")


def _check_table(path: Path) -> Iterator[Finding]:
    recorded = _read(path)
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / path.name
        _WRITERS[path.name](path, recorded, again)
        expected = _read(again)
    faults = list(_differences(recorded, expected))
    yield from (failed(f"{path.name}: {fault}; write the file again") for fault in faults)
    if not faults:
        yield ok(f"{path.name}: each of {len(recorded)} rows agrees with the results")
    if recorded and expected and recorded[0].keys() != expected[0].keys():
        yield note(
            f"{path.name}: another version of nnlo wrote it, with other columns; only common ones were compared"
        )


def _differences(recorded: list[Row], expected: list[Row]) -> Iterator[str]:
    if len(recorded) != len(expected):
        yield f"{len(recorded)} rows instead of {len(expected)}"
    for number, (row, right) in enumerate(zip(recorded, expected, strict=False), 1):
        for name in [name for name in row if name in right]:
            if row[name] != right[name]:
                yield f"row {number}: {name} is {row[name]}, but the results give {right[name]}"


def _read(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write_summary(path: Path, rows: list[Row], output: Path) -> None:
    """Write the summary of the jobs that the rows of the recorded summary name."""
    # Imported here, because a check of a single training starts faster without pandas.
    from nnlo_lib.report.tables import load_jobs, summarize, write_summary

    write_summary(summarize(load_jobs(_job_folder(path.parent, row) for row in rows)), output)


def _write_comparisons(path: Path, _: list[Row], output: Path) -> None:
    """Write the comparisons of the jobs that the summary beside the recorded comparisons names."""
    from nnlo_lib.report.statistics.comparison_text import compare_all, write_comparisons
    from nnlo_lib.report.tables import load_jobs, summarize

    rows = _read(path.with_name(SUMMARY))
    jobs = load_jobs(_job_folder(path.parent, row) for row in rows)
    write_comparisons(compare_all(summarize(jobs), jobs), output)


def _write_trials(path: Path, _: list[Row], output: Path) -> None:
    """Write the table of the search in the folder of the recorded table."""
    from nnlo_lib.search.best import write_table
    from nnlo_lib.search.study.storage import load_study

    write_table(output, load_study(path.parent))


_WRITERS = {SUMMARY: _write_summary, COMPARISONS: _write_comparisons, SearchPaths.table.name: _write_trials}


def _job_folder(experiment: Path, row: Row) -> Path:
    fold = f"/fold-{int(float(row['fold']))}" if row["fold"] else ""
    folder = experiment / row["run"] / f"seed-{row['seed']}{fold}"
    if not RunPaths(folder).summary.exists():
        raise UserError(f"the row of {folder} has no results")
    return folder
