"""Check that the metrics of the history are the mean, smallest and largest value over the nodes of the table of nodes."""

from collections.abc import Iterator, Sequence

from nnlo_lib.reliability.verify.finding import Finding, failed, ok
from nnlo_lib.reliability.verify.recorded_numbers.number_comparison import agree
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.jsonl_table import TableRow, read_rows

KEYS = ("epoch", "node")  # the other columns are metrics


def check_node_metrics(run: FinishedRun) -> Iterator[Finding]:
    """Compare the rows of the history, and the validations within epochs, with the table of nodes, if there is one."""
    if not run.paths.nodes.exists():
        return
    state = run.paths.state
    try:
        tables = [read_rows(path) for path in (state.nodes, state.history, state.validations)]
        faults = list(_faults(*tables))
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return  # check_history reports the fault of the table.
    yield from (failed(f"history: {fault}") for fault in faults[:3])
    if not faults:
        count = len(tables[1]) + len(tables[2])
        yield ok(f"history: the metrics of {count} validations follow from the nodes in nodes.csv")


def _faults(
    nodes: Sequence[TableRow], history: Sequence[TableRow], within: Sequence[TableRow]
) -> Iterator[str]:
    """Yield the fault of each number that differs.

    Args:
        nodes: rows of the table of nodes.
        history: rows of the history.
        within: validations within epochs.
    """
    groups = list(_validations(nodes))
    ended = [((row["epoch"] - 1, 1), row) for row in history]
    # In these rows, `epoch` is the number of completed epochs.
    between = [((row["epoch"], 0), row) for row in within]
    rows = [row for _, row in sorted(ended + between, key=lambda each: each[0])]
    if len(groups) != len(rows):
        yield f"nodes.csv has {len(groups)} validations, but the history has {len(rows)}"
        return
    for row, group in zip(rows, groups, strict=True):
        for name, value in _summary(group).items():
            if not agree(row.get(name), value):
                yield f"{name} at step {row['step']} is {row.get(name)}, but nodes.csv gives {value}"


def _validations(nodes: Sequence[TableRow]) -> Iterator[list[TableRow]]:
    """Yield the rows of each validation, which begins with node 0."""
    starts = [index for index, row in enumerate(nodes) if row["node"] == 0]
    for first, end in zip(starts, [*starts[1:], len(nodes)], strict=True):
        yield list(nodes[first:end])


def _summary(nodes: Sequence[TableRow]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in (name for name in nodes[0] if name not in KEYS):
        values = [node[name] for node in nodes]
        found[f"val_{name}"] = sum(values) / len(values)
        found |= {f"val_{name}_min": min(values), f"val_{name}_max": max(values)}
    return found
