"""docs/reference/endings.md lists every way in which a training ends; each row is brought about by a test.

NNLO_WRITE_OUTPUT=1 pytest tests/docs/test_endings_page.py writes the page.
"""

import os

import pytest
from helpers.endings import ENDINGS, PAGE, page, rows


@pytest.mark.exhaustive
@pytest.mark.parametrize("title", ENDINGS)
def test_ending(title, tmp_path):
    ending = ENDINGS[title]
    seen = ending.way(tmp_path)
    assert (seen.status, seen.reason) == (ending.status, ending.reason), seen.output
    assert ending.words in seen.last_line, seen.output
    assert ending.output in seen.output
    assert "Traceback" not in seen.output
    if os.environ.get("NNLO_WRITE_OUTPUT"):
        PAGE.write_text(page(rows() | {title: ending.row(seen)}))
    assert ending.row(seen) == rows()[title]


def test_the_page_has_the_rows_of_the_table():
    assert page(rows()) == PAGE.read_text()
