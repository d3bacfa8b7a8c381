"""Numbers of the words of texts, by the frequency of the words in the training texts."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from nnlo_lib.data.readers import Array

PADDING, UNKNOWN = 0, 1  # numbers that are no words
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
MARKUP = re.compile(r"<[^>]*>")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without markup, punctuation and underscores."""
    return WORD.findall(MARKUP.sub(" ", text).lower())


def vocabulary(texts: Iterable[str], size: int) -> dict[str, int]:
    """Return the numbers of the most frequent words, from 2 on; of equally frequent words, the first in the alphabet.

    Args:
        texts: training texts.
        size: number of words, including padding and unknown words.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words_of(text))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: size - 2], UNKNOWN + 1)}


def encoded(texts: Sequence[str], numbers: Mapping[str, int], length: int) -> Array:
    """Return the numbers of the first words of each text, (texts, length) of int32, with padding at the end.

    Args:
        texts: the texts.
        numbers: numbers of the known words.
        length: number of words that are kept.
    """
    rows = np.full((len(texts), length), PADDING, np.int32)
    for row, text in zip(rows, texts, strict=True):
        found = [numbers.get(word, UNKNOWN) for word in words_of(text)[:length]]
        row[: len(found)] = found
    return rows
