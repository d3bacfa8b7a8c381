"""docs/reference/endings.md lists every way in which a training ends; each row is brought about by a test."""

import pytest
from helpers.endings import ENDINGS, PAGE, page

ROWS = {line.split(" | ")[0].removeprefix("| "): line for line in PAGE.read_text().splitlines()}


def test_the_page_has_the_rows_of_the_table():
    assert page({title: ROWS[title] for title in ENDINGS}) == PAGE.read_text()


@pytest.mark.exhaustive
@pytest.mark.parametrize("title", ENDINGS)
def test_ending(title, tmp_path):
    ending = ENDINGS[title]
    seen = ending.way(tmp_path)
    assert (seen.status, seen.reason) == (ending.status, ending.reason), seen.output
    assert ending.words in seen.last_line, seen.output
    assert ending.output in seen.output
    assert "Traceback" not in seen.output
    assert ending.row(seen) == ROWS[title]
