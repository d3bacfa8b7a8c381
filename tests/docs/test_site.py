"""The documentation builds as a site without warnings and without resources of other hosts."""

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.headless_browser import find_chromium, started_browser
from helpers.requires import absent
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
        ("file:///work/nnlo", "`nnlo_lib/cli.py`, the table (`nnlo_lib/cli.py`), [data](data.md)"),
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


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://me:token@forge.org/lab/nnlo.git", "https://forge.org/lab/nnlo"),
        ("git@forge.org:lab/nnlo.git", "https://forge.org/lab/nnlo"),
        ("ssh://git@forge.org:2222/lab/nnlo", "https://forge.org/lab/nnlo"),
        ("/home/me/nnlo", None),
        ("../nnlo.git", None),
        ("", None),
    ],
)
def test_the_source_is_the_remote_repository_without_a_password(origin, address):
    (hook,) = load_config(str(REPOSITORY / "mkdocs.yml")).hooks.values()
    assert hook.source_address(origin) == address


def test_each_page_has_a_search_box_and_a_link_to_the_source(site):
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert 'class="md-search__input"' in text
        assert re.search(r'<a href="[^"]+" title="Source" class="md-source">', text), path.name


@pytest.mark.exhaustive
@pytest.mark.browser
def test_the_search_finds_pages_from_a_file_system(site):
    if find_chromium() is None:
        absent("no chromium on this machine")
    with started_browser() as browser:
        page = browser.page
        page.set_viewport_size({"width": 1400, "height": 900})
        page.goto((site / "guides/data.html").as_uri())
        page.locator(".md-search__input").click()
        page.keyboard.type("preemption")
        page.locator(".md-search-result__item").first.wait_for()
        assert "matching documents" in page.locator(".md-search-result__meta").inner_text()
        assert browser.complaints == []
