"""Formatting of numbers for people."""

import math

import pytest

from nnlo_lib.core.text_format import plural
from nnlo_lib.models.layer_table_text import si_count
from nnlo_lib.report import formatting
from nnlo_lib.report.tables import Spread


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (formatting.rounded(28211.93), "28,200"),
        (formatting.percent(0.0431, 2), "4.3 %"),
        (formatting.share(0.0004), "< 0.1 %"),
        (formatting.share(0.6972), "69.7 %"),
        (formatting.format_bytes(4_107_529_632), "4.11 GB"),
        (si_count(999_700), "1 M"),
        (si_count(999_400), "999 k"),
        (si_count(1_000_000_000_000_000), "1000 T"),
        (si_count(999), "999 "),
        (formatting.format_duration(5400), "1 h 30 min"),
        (formatting.plus_minus(Spread(0.96934, 0.00213, 3), 100, "%"), "96.93 ± 0.21 %"),
        (formatting.plus_minus(Spread(5312.2, 88.4, 3)), "5,312 ± 88"),
        (formatting.plus_minus(Spread(0.5, math.nan, 1)), "0.5000"),
        (formatting.plus_minus(Spread(2.0, 0.0, 3)), "2.000 ± 0.000"),
        (formatting.plus_minus(Spread(2.2953, 3.1e-7, 3)), "2.2953 ± 3.1e-07"),
        (formatting.plus_minus(Spread(math.nan, math.nan, 0)), "–"),
        (formatting.listing(["a", "b", "c"]), "a, b and c"),
        (formatting.listing(["a"]), "a"),
        (plural(1, "seed"), "1 seed"),
    ],
)
def test_written(written, expected):
    assert written.replace("\u00a0", " ") == expected
