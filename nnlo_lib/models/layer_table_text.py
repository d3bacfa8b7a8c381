"""Text form of the layer table of a model."""

from collections.abc import Sequence
from typing import Any

from nnlo_lib.core.text_format import size_text, table_lines

LayerRecord = dict[str, Any]
Flops = tuple[int | None, int | None]
HEADINGS = ("#", "layer", "type", "output", "weights", "parameters", "FLOPs", "settings")
LEFT = (1, 2, 3, 4, 7)


def layer_table_text(rows: Sequence[LayerRecord], flops: Flops = (None, None)) -> str:
    """Format the layer table for a terminal.

    `flops`: floating-point operations of the model's forward and backward pass, None if unknown.
    """
    table = [HEADINGS, *(_cells(number, row) for number, row in enumerate(rows))]
    lines = list(table_lines(table, LEFT))
    return "\n".join([lines[0], "-" * min(max(map(len, lines)), 110), *lines[1:], "", *_totals(rows, flops)])


def _cells(number: int, row: LayerRecord) -> tuple[str, ...]:
    return (
        str(number), row["name"], row["type"], shape_text(row["shape"]), shape_text(row["weights"]),
        f"{row['parameters']:,}" if row["parameters"] else "", si_count(row["flops"]) if row["flops"] else "",
        row["settings"],
    )  # fmt: skip


def _totals(rows: Sequence[LayerRecord], flops: Flops) -> list[str]:
    parameters = sum(row["parameters"] for row in rows)
    lines = [f"{parameters:,} parameters, {size_text(sum(row['bytes'] for row in rows))}"]
    forward, backward = flops
    if forward is not None and backward is not None:
        # A multiplication and the addition of its product count as two operations, but as one MAC.
        macs = si_count(forward // 2)
        lines.append(
            f"per sample: {si_count(forward)}FLOPs forward ({macs}MACs), {si_count(backward)}FLOPs backward"
        )
    return lines


def shape_text(shape: Sequence[Any] | None) -> str:
    """Write [3, 32, 32] as 3x32x32; separate several shapes by commas."""
    if not shape:
        return "" if shape is None or shape == [] else str(shape)
    if isinstance(shape[0], list | tuple):
        return ", ".join(shape_text(each) for each in shape)
    return "x".join(map(str, shape))


def si_count(number: int) -> str:
    """Write 3,628,146,688 as 3.63 G."""
    shown = float(f"{number:.3g}")  # rounded before the unit is chosen: 999,700 is 1 M, not 1e+03 k
    for power, unit in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if shown >= 10**power:
            return f"{shown / 10**power:.4g} {unit}"
    return f"{number} "
