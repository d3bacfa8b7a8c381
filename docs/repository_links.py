"""A hook of mkdocs: the header leads to the source, and links that leave docs/ do if the source has a URL, else they are paths.

The source is the clone's `origin` on a forge, or without one the folder of the clone.
"""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")


def source_address(origin):
    """Return the web page of a remote repository, without a password; None if the remote is a folder or there is none."""
    forge = re.fullmatch(
        r"(?:https?://|ssh://)?(?:[^@/]+@)?([\w-]+(?:\.[\w-]+)+)(?::\d+(?=/))?[:/](.+?)(?:\.git)?/?", origin
    )
    return f"https://{forge[1]}/{forge[2].lstrip('/')}" if forge else None


def on_config(config):
    """Set the address of the link in the header, unless mkdocs.yml has one."""
    remote = subprocess.run(
        ["git", "-C", ROOT, "remote", "get-url", "origin"], capture_output=True, text=True, check=False
    )
    config.repo_url = config.repo_url or source_address(remote.stdout.strip()) or ROOT.as_uri()
    return config


def on_page_markdown(markdown, page, config, files):
    """Replace the links of a page to files outside docs/."""

    def replaced(link):
        text, target, anchor = link[1], link[2], link[3] or ""
        path = os.path.normpath(os.path.join("docs", os.path.dirname(page.file.src_uri), target))
        if path.startswith("docs/"):
            return link[0]
        if config.repo_url and not config.repo_url.startswith("file:"):
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path}{anchor})"
        plain = text.strip("`")
        return f"`{path}`" if path.endswith(plain) else f"{text} (`{path}`)"

    return LINK.sub(replaced, markdown)
