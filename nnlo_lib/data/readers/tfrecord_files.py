"""The TFRecord files in a folder, by the names of ImageNet and TensorFlow Datasets, or by patterns of the user."""

import glob
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.file_list import refuse_repeated_files

SPLITS = ("train", "validation", "test")
# train-00000-of-01024, imagenet2012-train.tfrecord-00000-of-01024, train-00000-of-00010.tfrecord.gz
FILE_NAME = re.compile(
    r"(?P<before>(?:.+[-_.])?)(?P<split>train|validation|test)(?P<middle>(?:\.\w+)?)"
    r"-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<after>(?:\.tfrec\w*)?(?:\.gz)?)"
)
EXAMPLES = "train-00000-of-01024 or imagenet2012-train.tfrecord-00000-of-01024"

Patterns = Mapping[str, str | None]  # pattern of the files of each split


def find_files(folder: Path, patterns: Patterns) -> dict[str, Path]:
    """Return the file of each shard by the name of the shard, like train/train-00000-of-01024.

    Without a pattern for `train`, the files are found by their names. If the only split beside `train` is
    `validation`, it is the test split.

    Args:
        folder: folder of the files.
        patterns: pattern of the files of each split, or None.
    Raises:
        UserError: if train files are missing, a split is incomplete, or files of several sets are mixed.
    """
    if any(patterns.values()):
        return _by_pattern(folder, patterns)
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}") from error
    matches = [match for name in names if (match := FILE_NAME.fullmatch(name))]
    files = {split: _set(folder, split, matches) for split in SPLITS}
    if not files["train"]:
        raise UserError(
            f"{folder}: no TFRecords found; set data.source to a folder of files like {EXAMPLES}, or name the files in "
            f"data.reader.train"
        )
    splits = dict(zip(SPLITS, SPLITS, strict=True)) | ({} if files["test"] else {"validation": "test"})
    return {f"{splits[split]}/{name}": path for split in SPLITS for name, path in files[split].items()}


def _by_pattern(folder: Path, patterns: Patterns) -> dict[str, Path]:
    if not patterns["train"]:
        raise UserError("data.reader.train: missing; give the pattern of the training files too")
    files: dict[str, Path] = {}
    chosen: dict[str, list[Path]] = {}
    for split in SPLITS:
        # With root_dir, special characters in the path of the folder are not part of the pattern.
        names = sorted(glob.glob(pattern, root_dir=folder)) if (pattern := patterns[split]) else []
        found = [name for name in names if (folder / name).is_file()]
        if pattern and not found:
            raise UserError(
                f"data.reader.{split}: no file in {folder} matches {pattern}; correct the pattern"
            )
        chosen[split] = [folder / name for name in found]
        for index, path in enumerate(chosen[split]):
            files[f"{split}/{split}-{index:05d}-of-{len(found):05d}"] = path
    refuse_repeated_files(chosen)
    return files


def _set(folder: Path, split: str, matches: Iterable[re.Match[str]]) -> dict[str, Path]:
    """Return the files of a split in order. Raises UserError if files are missing or of several sets.

    Args:
        folder: folder of the files.
        split: train, validation or test.
        matches: parts of the names of all files.
    """
    found = [match for match in matches if match["split"] == split]
    sets = sorted({match.expand(r"\g<before>\g<split>\g<middle>-*-of-\g<count>\g<after>") for match in found})
    if len(sets) > 1:
        raise UserError(
            f"{folder}: {split} files of several sets ({' and '.join(sets)}); keep the files of one set only, or name "
            f"the files in data.reader.train"
        )
    present = {match["number"]: match.string for match in found}
    count = found[0]["count"] if found else "0"
    wanted = {f"{index:05d}": sets[0].replace("*", f"{index:05d}", 1) for index in range(int(count))}
    if missing := [name for number, name in wanted.items() if number not in present]:
        some = ", ".join(missing[:3]) + ", ..." * (len(missing) > 3)
        raise UserError(f"{folder}: {len(missing)} of {len(wanted)} TFRecords are missing: {some}")
    if strange := sorted(present.keys() - wanted.keys()):
        raise UserError(
            f"{folder}: the number of {present[strange[0]]} is not below the number of files in its name; remove the file"
        )
    return {f"{split}-{number}-of-{count}": folder / name for number, name in wanted.items()}
