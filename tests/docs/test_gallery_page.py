"""The gallery has each example experiment once, below a question; `python benchmarks/gallery.py --page` renews it."""

import re

import pytest
import yaml
from helpers.document_blocks import REPOSITORY, blocks

EXAMPLES = {path.stem: path for path in (REPOSITORY / "config/experiments").glob("*.yaml")}
PAGE = REPOSITORY / "docs/guides/gallery.md"
TEXT = PAGE.read_text()
SHARED, *SHOWN = [block for block in blocks(PAGE) if block.language == "yaml"]


def test_each_example_has_an_entry_and_a_link_in_the_overview():
    assert sorted(re.findall(r"^### (.*)$", TEXT, re.MULTILINE)) == sorted(EXAMPLES)
    assert sorted(re.findall(r'<a href="#([\w-]+)">', TEXT)) == sorted(EXAMPLES)
    assert [name for name, path in EXAMPLES.items() if f"config/experiments/{path.name}" not in TEXT] == []


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_an_example_is_shown_as_it_is(block):
    """Without comment and name, and without the settings that several examples share."""
    name = TEXT[: block.start].rpartition("\n### ")[2].partition("\n")[0]
    settings = yaml.safe_load(EXAMPLES[name].read_text())
    shown, shared = yaml.safe_load(block.text), yaml.safe_load(SHARED.text)
    assert {"name": name} | shown == settings or {"name": name} | shared | shown == settings


def test_pictures_are_shown_and_small():
    shown = set(re.findall(r"\(\.\./images/(gallery/[^)]+)\)", TEXT))
    pictures = {
        f"gallery/{path.name}": path.stat().st_size
        for path in (REPOSITORY / "docs/images/gallery").iterdir()
        if path.suffix != ".json"
    }
    assert shown == pictures.keys()
    thumbnails = re.findall(r'<img src="\.\./images/([^"]+)"', TEXT)
    assert sorted(thumbnails) == sorted(re.findall(r"\]\(\.\./images/([^)]+)\)", TEXT))
    assert max(pictures.values()) <= 40_000
    assert sum(pictures.values()) <= 600_000


def test_sentences_and_paragraphs_are_short():
    prose = re.sub(r"```.*?```|<p.*?</p>|<!--.*?-->", "", TEXT, flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", prose):
        assert len(paragraph.split()) <= 90, paragraph
        assert [each for each in re.split(r"(?<=[.?!:;])\s", paragraph) if len(each.split()) > 35] == []
