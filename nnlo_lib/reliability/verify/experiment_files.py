"""Check the tables of a whole experiment, summary.csv, comparisons.csv and trials.csv, against the results."""

import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.config.paths import SEARCH_FOLDER, ExperimentPaths, RunPaths, SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.reliability.verify.finding import Finding, failed, note, ok

SUMMARY, COMPARISONS = ExperimentPaths.summary.name, ExperimentPaths.comparisons.name
Row = dict[str, str]


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


def _write_summary(path: Path, rows: list[Row], output: Path) -> None:
    """Write the summary of some jobs again, from their results.

    Args:
        path: path of the recorded summary.
        rows: its rows, which name the jobs.
        output: file to write.
    """
    # Imported here, because a check of a single training starts faster without pandas.
    from nnlo_lib.report.finished_job import load_jobs
    from nnlo_lib.report.tables import summarize, write_summary

    write_summary(summarize(load_jobs(_job_folder(path.parent, row) for row in rows)), output)


def _write_comparisons(path: Path, _: list[Row], output: Path) -> None:
    """Write the comparisons of some jobs again, from their results.

    Args:
        path: path of the recorded comparisons; the summary beside it names the jobs.
        output: file to write.
    """
    from nnlo_lib.report.finished_job import load_jobs
    from nnlo_lib.report.statistics.comparisons_csv import compare_all, write_comparisons
    from nnlo_lib.report.tables import summarize

    rows = _read(path.with_name(SUMMARY))
    jobs = load_jobs(_job_folder(path.parent, row) for row in rows)
    write_comparisons(compare_all(summarize(jobs), jobs), output)


def _write_trials(path: Path, _: list[Row], output: Path) -> None:
    """Write the table of a search again, from its results.

    Args:
        path: path of the recorded table.
        output: file to write.
    """
    from nnlo_lib.search.results.trials_csv import write_table
    from nnlo_lib.search.study.storage import load_study

    write_table(output, load_study(path.parent))


_WRITERS = {SUMMARY: _write_summary, COMPARISONS: _write_comparisons, SearchPaths.table.name: _write_trials}


def _job_folder(experiment: Path, row: Row) -> Path:
    fold = f"/fold-{int(float(row['fold']))}" if row["fold"] else ""
    folder = experiment / row["run"] / f"seed-{row['seed']}{fold}"
    if not RunPaths(folder).summary.exists():
        raise UserError(f"the row of {folder} has no results")
    return folder


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
