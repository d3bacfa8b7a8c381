"""Errors as one line that ends with the cause."""

import traceback

import pytest

from nnlo_lib.core.errors import CUT, error_headline, without_middle
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.state.attempt_outcome import AttemptOutcome


def deep(levels, error):
    if levels:
        deep(levels - 1, error)
    raise error


def trace(error, cause=None):
    try:
        try:
            deep(5, cause or error)
        except type(cause or error):
            if cause is None:
                raise
            raise error from cause
    except Exception as caught:
        return "rank 2 failed: " + "".join(traceback.format_exception(caught))


def noted(error, *notes):
    for note in notes:
        error.add_note(note)
    return error


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("a sentence", "a sentence"),
        ("cannot download\n  the host is down", "cannot download; the host is down"),
        (trace(ValueError("4 is odd")), "rank 2 failed: ValueError: 4 is odd"),
        (trace(ValueError("4 is odd:\n  four\n\n  is odd")), "rank 2 failed: ValueError: 4 is odd: four; is odd"),
        (trace(KeyError("a"), ValueError("b")), "rank 2 failed: KeyError: 'a'"),
        (trace(noted(KeyError("a"), "samples are 1 x 8")), "rank 2 failed: KeyError: 'a'; samples are 1 x 8"),
    ],
)  # fmt: skip
def test_frames_are_left_out(text, line):
    assert error_headline(text) == line
    assert AttemptOutcome("code error", text).error_summary == (line or None)


def test_the_end_of_a_long_error_is_kept():
    line = error_headline("net.py:3 in forward: " + "and more " * 500 + "\nthe third layer is too wide", 100)
    assert line.startswith("net.py:3 in forward: and")
    assert CUT in line
    assert line.endswith("the third layer is too wide")
    assert len(line) <= 100
    assert without_middle("x" * 100, 100) == "x" * 100


def test_an_error_of_a_users_file_keeps_its_end():
    text = error_with_source_line(ValueError("config " * 1000 + "the units must be positive"))
    assert text.startswith("ValueError: config")
    assert text.endswith("the units must be positive")
