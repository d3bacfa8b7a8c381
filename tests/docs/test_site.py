"""The documentation builds as a site without warnings and without resources of other hosts."""

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

REPOSITORY = Path(__file__).parents[2]
OTHER_HOST = re.compile(r"^(https?:)?//")
CSS_LOADS = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")


class Resources(HTMLParser):
    """Resources that a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag == "link" and values.get("rel") in ("canonical", "edit", "prev", "next"):
            return
        if source := values.get("src") or (tag == "link" and values.get("href")):
            self.loads.append(source)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site as `make site` does, where a broken link or anchor is an error; return its folder."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(REPOSITORY / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def test_every_document_is_a_page(site):
    documents = [path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").rglob("*.md")]
    assert [each for each in documents if not (site / each).with_suffix(".html").exists()] == []


def test_pages_load_nothing_from_other_hosts_and_their_lists_and_blocks_are_rendered(site):
    """Unlike a forge, the site needs an empty line above a list."""
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert [load for load in Resources(text).loads if OTHER_HOST.match(load)] == [], path.name
        for paragraph in re.findall(r"<p>(.*?)</p>", text, re.DOTALL):
            assert not re.search(r"\n(\*|-|\d+\.) |```", paragraph), f"{path.name}: {paragraph[:80]}"
    assert [path.name for path in site.rglob("*.css") if CSS_LOADS.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("repository", "text"),
    [
        (None, "`nnlo_lib/cli.py`, the table (`nnlo_lib/cli.py`), [data](data.md)"),
        (
            "https://forge.org/nnlo",
            "[cli.py](https://forge.org/nnlo/blob/main/nnlo_lib/cli.py), "
            "[the table](https://forge.org/nnlo/blob/main/nnlo_lib/cli.py), [data](data.md)",
        ),
    ],
)
def test_links_to_the_repository(repository, text):
    (hook,) = load_config(str(REPOSITORY / "mkdocs.yml")).hooks.values()
    page = SimpleNamespace(file=SimpleNamespace(src_uri="guides/search.md"))
    written = "[cli.py](../../nnlo_lib/cli.py), [the table](../../nnlo_lib/cli.py), [data](data.md)"
    assert hook.on_page_markdown(written, page, SimpleNamespace(repo_url=repository), None) == text
