"""The documentation builds as a site without warnings, without resources of other hosts, and with valid links."""

import re
import shutil
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

REPOSITORY = Path(__file__).parents[2]
OTHER_HOST = re.compile(r"^(https?:)?//")
CSS_LOADS = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")


@dataclass
class Page(HTMLParser):
    """Resources, links and anchors of one page of the site."""

    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in ("canonical", "edit", "prev", "next"):
            return
        elif source := values.get("src") or (tag == "link" and values.get("href")):
            self.loads.append(source)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site as `make site` does, and return its folder."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(REPOSITORY / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """Return all pages of the site by path."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path] = Page()
        found[path].feed(path.read_text())
    return found


def test_every_document_is_a_page(site):
    documents = {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").rglob("*.md")}
    assert {
        document for document in documents if not (site / document).with_suffix(".html").exists()
    } == set()


def test_pages_load_nothing_from_other_hosts(site, pages):
    assert {load for page in pages.values() for load in page.loads if OTHER_HOST.match(load)} == set()
    assert [path.name for path in site.rglob("*.css") if CSS_LOADS.search(path.read_text())] == []


def test_links_lead_to_files_and_anchors(pages):
    checked = 0
    for path, page in pages.items():
        for link in {*page.links, *page.loads}:
            if path.name == "404.html" or re.match(r"[a-z]+:", link):
                continue  # the error page has absolute links
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.name}: {link}"
            assert not anchor or target not in pages or anchor in pages[target].anchors | {"__top"}, link
            checked += 1
    print(f"{checked} links")
    assert checked > 1000


def test_lists_and_blocks_are_such(site):
    """All lists and code blocks are rendered: the site, unlike a forge, needs an empty line above a list."""
    for path in site.rglob("*.html"):
        for paragraph in re.findall(r"<p>(.*?)</p>", path.read_text(), re.DOTALL):
            assert not re.search(r"\n(\*|-|\d+\.) |```", paragraph), f"{path.name}: {paragraph[:80]}"


def test_warnings_end_the_build(tmp_path):
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs")
    with (tmp_path / "docs/index.md").open("a") as page:
        page.write("[to nowhere](guides/data.md#nowhere)")
    with pytest.raises(Abort):
        build(
            load_config(
                str(REPOSITORY / "mkdocs.yml"),
                strict=True,
                docs_dir=str(tmp_path / "docs"),
                site_dir=str(tmp_path / "site"),
            )
        )


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
