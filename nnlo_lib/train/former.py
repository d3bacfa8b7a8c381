"""What an unfinished training leaves behind when its experiment changes: set aside, not trained over."""

from collections.abc import Sequence
from pathlib import Path

from nnlo_lib.state import attempts

KEPT = ("history.jsonl", "nodes.jsonl", "ledger.jsonl", "validations.jsonl", "checkpoints")


def set_aside(state: Path) -> Path | None:
    """Move what an unfinished training could go on from into a folder of its own; None if there is nothing to keep.

    A finished one has published all that it came to.
    """
    checkpoints = list((state / "checkpoints").glob("[0-9]" * 8))
    if not checkpoints or _finished(attempts.read(state)):
        return None
    former = state / f"former-{1 + len(list(state.glob('former-*')))}"
    former.mkdir()
    for name in KEPT:
        if (state / name).exists():
            (state / name).rename(former / name)
    (state / "checkpoints").mkdir()
    return former


def _finished(before: Sequence[attempts.Attempt]) -> bool:
    return bool(before) and before[-1].reason == "finished"
