"""Reader of texts in one folder per class, as word numbers: <split>/<class>/*.txt, like the film reviews of IMDB.

Words are numbered by their frequency in the training texts.
"""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import is_visible
from nnlo_lib.data.fetch.record import Stamp, stamp_of
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, SampleBlock, composed, shard_ranges

PADDING, UNKNOWN = 0, 1  # numbers that are no words
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
MARKUP = re.compile(r"<[^>]*>")
SPLITS = ("train", "validation", "test")
BYTES_PER_WORD = 4
LAYOUT = "train/<class>/*.txt and test/<class>/*.txt"
LabeledText = tuple[Path, int]  # file, class


def read(folder: Path, shard_size: int, *, words: int = 10_000, length: int = 500) -> DatasetContents:
    """Return the contents of the text folders, with the numbers of the most frequent words of the training texts.

    Texts are ordered by the hash of their path, which mixes the classes. Raises UserError if train and test have no two classes.
    """
    root = _root(folder)
    splits = [split for split in SPLITS if (root / split).is_dir()]
    # Texts by class by split.
    found = {
        split: {
            composed(each.name): texts
            for each in (root / split).iterdir()
            if is_visible(each.name) and each.is_dir() and (texts := [*each.glob("*.txt")])
        }
        for split in splits
    }
    classes = sorted(found["train"].keys() & found["test"].keys())
    if len(classes) < 2:
        raise UserError(
            f"{root}: {len(classes)} classes have .txt files in train and in test, but at least 2 are needed; expected {LAYOUT}"
        )
    ordered = {
        split: sorted(
            ((path, label) for label, name in enumerate(classes) for path in found[split].get(name, ())),
            key=lambda each: hashlib.sha256(os.fsencode(each[0].relative_to(root / split))).digest(),
        )
        for split in splits
    }
    training = tuple(path for path, _ in ordered["train"])
    units = []
    for split, each in ordered.items():
        for name, start, end in shard_ranges(split, len(each), shard_size, length * BYTES_PER_WORD):
            part = each[start:end]
            files = tuple(dict.fromkeys((*(path for path, _ in part), *training)))
            units.append(
                ConversionUnit(split, name, root, partial(_block, part, training, words, length), files=files)
            )
    left_out = sorted(f"{split}/{name}" for split in splits for name in found[split] if name not in classes)
    notes = (f"{', '.join(left_out)}: not read, because train or test has no such class",) if left_out else ()
    return DatasetContents(tuple(units), class_names=tuple(classes), notes=notes)


def _root(folder: Path) -> Path:
    """Return the folder with train and test: `folder`, or its only such subfolder."""
    places = [folder, *sorted(each for each in folder.iterdir() if each.is_dir() and is_visible(each.name))]
    for place in places:
        if all((place / split).is_dir() for split in ("train", "test")):
            return place
    raise UserError(f"{folder}: no folders train and test; expected {LAYOUT}")


def _block(texts: list[LabeledText], training: tuple[Path, ...], words: int, length: int) -> SampleBlock:
    """Return the numbers of the first words of the texts of a shard, with padding at the end."""
    numbers = _numbers(training, words, tuple(map(stamp_of, training)))
    rows = np.full((len(texts), length), PADDING, np.int32)
    for row, (path, _) in zip(rows, texts, strict=True):
        found = [numbers.get(word, UNKNOWN) for word in words_of(_text(path))[:length]]
        row[: len(found)] = found
    return SampleBlock((rows,), np.array([label for _, label in texts], np.int64))


@lru_cache(maxsize=1)
def _numbers(training: tuple[Path, ...], words: int, _versions: tuple[Stamp, ...]) -> dict[str, int]:
    """Return the vocabulary of one version of the files, which is made once for all shards."""
    return vocabulary(map(_text, training), words)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: no text in UTF-8 ({error}); replace or remove the file") from error


def vocabulary(texts: Iterable[str], size: int) -> dict[str, int]:
    """Return the numbers of the most frequent words, from 2 on; of equally frequent words, the first in the alphabet.

    The size of the vocabulary includes padding and unknown words.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words_of(text))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: size - 2], UNKNOWN + 1)}


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without markup, punctuation and underscores."""
    return WORD.findall(MARKUP.sub(" ", text).lower())
