"""Numbers, sizes, durations and tables for people."""

import math

import pytest

from nnlo_lib.core.text_format import duration_text, number, size_text, table_lines


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (number(0.012345), "0.01235"),
        (number(28211.93), "28,212"),
        (number(0), "0"),
        (number(math.nan), "–"),
        (number(3e-7), "3.00e-07"),
        (size_text(999), "999 B"),
        (size_text(1000), "1.00 kB"),
        (size_text(4_107_529_632), "4.11 GB"),
        (size_text(0), "0 B"),
        (size_text(0.3), "0 B"),
        (size_text(259.76), "260 B"),
        (size_text(999.7), "1.00 kB"),
        (size_text(999_700), "1.00 MB"),
        (duration_text(8.134), "8.13 s"),
        (duration_text(5400), "1 h 30 min"),
    ],
)
def test_written(written, expected):
    assert written == expected


def test_a_table_has_columns_of_equal_width():
    rows = [("run", "jobs", "note"), ("allreduce", "3", ""), ("sgp", "12", "slow")]
    assert list(table_lines(rows, left=(0, 2))) == [
        "run        jobs  note",
        "allreduce     3",
        "sgp          12  slow",
    ]
    assert list(table_lines([])) == []
