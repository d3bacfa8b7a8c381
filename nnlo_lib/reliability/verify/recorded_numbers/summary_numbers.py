"""Check the numbers of summary.json against the files that they come from."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.core.content_checksum import CHECKSUM_KEY, content_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition.partition_file import load_partition
from nnlo_lib.reliability.verify.epoch_table import EpochTableError, read_epoch_table
from nnlo_lib.reliability.verify.finding import Finding, failed, note
from nnlo_lib.reliability.verify.recorded_numbers.number_comparison import Comparison, check_comparisons
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.jsonl_table import TableRow, read_rows
from nnlo_lib.topology.topology import build_topology

NOT_IN_HISTORY = ("metrics", "telemetry")  # purposes of bytes that the column `bytes` leaves out


def check_summary(run: FinishedRun) -> Iterator[Finding]:
    """Check the checksum of summary.json, and each number that another file holds or determines."""
    yield from check_content(run.paths.summary.name, run.summary)
    try:
        rows = read_epoch_table(run.paths.state.history, run.epochs)
        validations = read_rows(run.paths.state.validations)
    except (EpochTableError, OSError, ValueError):
        return  # check_history reports the fault of the table.
    try:
        comparisons = list(_comparisons(run, rows, validations))
    except (UserError, KeyError, IndexError, TypeError, ValueError) as error:
        # Summaries of older versions lack keys; in others, check_content reports the change.
        yield note(
            f"summary.json: the numbers were not compared, because a key is missing or damaged: {error}"
        )
        return
    yield from check_comparisons(run.paths.summary.name, comparisons)


def check_content(name: str, content: dict[str, Any]) -> Iterator[Finding]:
    """Compare the content of a file with the checksum in it; a note if an older version wrote no checksum."""
    if CHECKSUM_KEY not in content:
        yield note(f"{name}: an older version of nnlo wrote no checksum of its content")
    elif content[CHECKSUM_KEY] != content_checksum(content):
        yield failed(f"{name} was modified: its content differs from its {CHECKSUM_KEY}")


def _comparisons(run: FinishedRun, rows: list[TableRow], validations: list[TableRow]) -> Iterator[Comparison]:
    """Yield the comparisons of summary.json.

    Args:
        run: the training.
        rows: the history, one row per epoch.
        validations: validations within epochs.
    """
    yield from _history_values(run.summary, rows[-1])
    yield from _final_values(run.summary, rows, validations)
    yield from _rank_values(run)
    yield from _job_values(run)
    yield from _sample_values(run)
    if (gap := run.summary.get("spectral_gap")) is not None:
        topology = build_topology(run.config.topology, run.config.workers, run.summary["seed"])
        yield Comparison("spectral_gap", gap, topology.spectral_gap, "the graph")


def _history_values(summary: dict[str, Any], last: TableRow) -> Iterator[Comparison]:
    source = "the last row of the history"
    columns = {"epochs": "epoch", "steps": "step", "samples_seen": "samples", "training_seconds": "seconds"}
    for key, column in columns.items():
        if key in summary:
            yield Comparison(key, summary[key], last[column], source)
    speed = last["samples"] / last["seconds"] if last["seconds"] else None
    yield Comparison("samples_per_second", summary["samples_per_second"], speed, source)
    counted = [value for key, value in summary["bytes_sent"].items() if key not in NOT_IN_HISTORY]
    # After the last row, the replicas may still be averaged.
    yield Comparison("the sum of bytes_sent", sum(counted), max(sum(counted), last["bytes"]), source)


def _final_values(
    summary: dict[str, Any], rows: list[TableRow], validations: list[TableRow]
) -> Iterator[Comparison]:
    """Yield the last training metrics, and the validation metrics of the published weights.

    Args:
        summary: content of summary.json.
        rows: the history, one row per epoch.
        validations: validations within epochs.
    """
    step = summary.get("published_step")
    if step is not None:
        steps = [row["step"] for row in (*validations, *rows)]
        yield Comparison("published_step", step, step if step in steps else None, "the validations")
    published = [row for row in (*validations, *rows) if row["step"] == step] or [rows[-1]]
    final = summary["final"]
    for name, value in final.items():
        row, column = published[-1] if name.startswith("val_") else rows[-1], name
        if f"{name}_mean" in final:
            continue  # Of the mean of the replicas, which no other file has; the history has the mean of their metrics.
        if name.endswith("_mean") and name.removesuffix("_mean") in final:
            column = name.removesuffix("_mean")
        yield Comparison(f"final.{name}", value, row.get(column), "the history")


def _rank_values(run: FinishedRun) -> Iterator[Comparison]:
    summary, source = run.summary, "the tables of ranks"
    by_rank, roles = summary["seconds_by_rank"], summary["roles"]
    yield Comparison("ranks", summary["ranks"], len(roles), "roles")
    yield Comparison("ranks", summary["ranks"], len(summary["hosts"]), "hosts")
    yield Comparison("ranks", summary["ranks"], len(by_rank), "seconds_by_rank")
    if run.run_segments:
        yield Comparison("ranks", summary["ranks"], run.run_segments[-1]["ranks"], "legs")
    means = {phase: sum(rank[phase] for rank in by_rank) / len(by_rank) for phase in by_rank[0]}
    for phase, mean in means.items():
        yield Comparison(f"seconds.{phase}", summary["seconds"][phase], mean, "seconds_by_rank")
    for rank, seconds in enumerate(by_rank):
        phases = sum(value for phase, value in seconds.items() if phase != "total")
        # The total may contain seconds outside of all phases.
        total = seconds["total"]
        yield Comparison(f"seconds_by_rank.{rank}.total", total, max(total, phases * (1 - 1e-9)), source)
    for purpose, count in summary["messages_sent"].items():
        # A purpose without messages has no bytes.
        size = summary["bytes_sent"].get(purpose, 0)
        yield Comparison(f"bytes_sent.{purpose}", size, size if count else 0, "messages_sent")
    for column, key in ((2, "messages_sent"), (3, "bytes_sent")):
        along, total = sum(edge[column] for edge in summary["edges"]), sum(summary[key].values())
        # Collective calls count in the totals, but not along the edges.
        yield Comparison(f"the sum of {key}", total, max(total, along), "edges")


def _sample_values(run: FinishedRun) -> Iterator[Comparison]:
    if "training_samples" not in run.summary:
        return
    source, (held_back, parts) = run.paths.partition.name, load_partition(run.paths.partition)
    yield Comparison("training_samples", run.summary["training_samples"], sum(map(len, parts)), source)
    # Without samples held back, a validation split of the data, or nothing, validates.
    validating = run.summary["validation_samples"]
    yield Comparison("validation_samples", validating, len(held_back) or validating, source)


def _job_values(run: FinishedRun) -> Iterator[Comparison]:
    summary, name = run.summary, run.folder.absolute()
    if summary.get("fold") is not None and name.name.startswith("fold-"):
        yield Comparison("fold", f"fold-{summary['fold']}", name.name, "the folder")
        name = name.parent
    if name.name.startswith("seed-"):
        yield Comparison("seed", f"seed-{summary['seed']}", name.name, "the folder")
    layers = summary["model"].get("layers")
    if layers:
        total = sum(layer["parameters"] for layer in layers)
        # Layers also count parameters that are not trained.
        trained = summary["model"]["parameters"]
        yield Comparison("model.parameters", trained, min(trained, total), "the layers")
