"""The gallery shows each example experiment as its file is; `python benchmarks/gallery.py --page` renews it."""

import re

import pytest
from helpers.document_blocks import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "config/experiments").glob("*.yaml"))
PAGE = REPOSITORY / "docs/guides/gallery.md"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_shown_as_it_is(path):
    assert f'```yaml title="{path.name}"\n{path.read_text().rstrip()}\n```' in PAGE.read_text()


def test_pictures_are_shown_and_small():
    shown = set(re.findall(r"\(\.\./images/(gallery/[^)]+)\)", PAGE.read_text()))
    pictures = {
        f"gallery/{path.name}": path.stat().st_size
        for path in (REPOSITORY / "docs/images/gallery").iterdir()
        if path.suffix != ".json"
    }
    assert shown == pictures.keys()
    assert max(pictures.values()) <= 40_000
    assert sum(pictures.values()) <= 600_000
