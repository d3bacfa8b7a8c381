"""Names of the folders of checkpoints: at least eight digits if complete, with a prefix if unfinished or damaged."""

import re
import shutil
from contextlib import suppress
from pathlib import Path


def checkpoint_folders(folder: Path) -> list[Path]:
    """Return the complete checkpoints in `folder`, judged by their names, oldest first."""
    return [folder / checkpoint_folder_name(number) for number in checkpoint_numbers(folder)]


def checkpoint_numbers(folder: Path) -> list[int]:
    """Return the numbers of the checkpoints in `folder`, judged by their names, oldest first."""
    return sorted(number for prefix, number in _numbered(folder) if not prefix)


def next_checkpoint_number(folder: Path) -> int:
    """Return a number above all checkpoints of `folder`, unfinished and damaged ones included."""
    return max((number for _, number in _numbered(folder)), default=0) + 1


def checkpoint_folder_name(number: int) -> str:
    """Return the folder name of a complete checkpoint."""
    return f"{number:08d}"


def unfinished_folder_name(number: int) -> str:
    """Return the folder name of a checkpoint that is being written or removed."""
    return f"unfinished-{number:08d}"


def remove_checkpoint(folder: Path, number: int) -> None:
    """Remove a checkpoint; rename it first, so that a crash cannot leave an incomplete checkpoint."""
    unfinished = folder / unfinished_folder_name(number)
    with suppress(OSError):
        (folder / checkpoint_folder_name(number)).rename(unfinished)
    shutil.rmtree(unfinished, ignore_errors=True)


def _numbered(folder: Path) -> list[tuple[str, int]]:
    """Return prefix and number of each name of a checkpoint."""
    found = (re.fullmatch(r"(|.*\D)(\d{8,})", path.name) for path in folder.glob("*"))
    return [(match[1], int(match[2])) for match in found if match]
