"""Checks of a report page: well-formed, self-contained, links resolved."""

import gzip
import re
from base64 import b64decode
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input", "path"}


HOSTILE = "<script>alert(1)</script>\"'&"


class Checker(HTMLParser):
    """Asserts that every tag is closed in order; collects ids, links, tags and text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.addresses, self.tags, self.text = [], [], [], [], ""
        self.feed(page)
        self.close()
        assert not self.open, f"never closed: {self.open}"
        assert len(self.ids) == len(set(self.ids)), "an id is used twice"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            self.ids += [value] if name == "id" else []
            self.addresses += [value] if name in ("src", "href", "srcset", "action", "data") else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing at {self.getpos()}"
        assert self.open.pop() == tag, f"</{tag}> out of order at {self.getpos()}"

    def handle_data(self, data):
        if self.open[-1:] != ["script"]:
            self.text += data


def check(path):
    page = path.read_text()
    found = Checker(page)
    assert not any("://" in each or each.startswith("/") for each in found.addresses), found.addresses
    # page.js names the address of the SVG name space; the policy of the page forbids to load anything.
    body = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    packed = re.findall(r'<script type="application/gzip">(.*?)</script>', page)
    found.figures = "".join(gzip.decompress(b64decode(each)).decode() for each in packed)
    assert not re.search(r"url\(|@import|https?://", body + found.figures)
    assert "default-src 'none'" in page
    assert "unsafe-eval" not in page.split("<style>")[0]
    targets = {address[1:] for address in found.addresses if address.startswith("#")}
    assert targets <= set(found.ids)
    assert len(page.encode()) < 2_000_000
    return found
