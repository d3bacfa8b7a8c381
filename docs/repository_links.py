"""A hook of mkdocs: links that leave docs/ lead to the repository's source, or are shown as paths if it has no URL."""

import os
import re

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown, page, config, files):
    """Replace the links of a page to files outside docs/."""

    def replaced(link):
        text, target, anchor = link[1], link[2], link[3] or ""
        path = os.path.normpath(os.path.join("docs", os.path.dirname(page.file.src_uri), target))
        if path.startswith("docs/"):
            return link[0]
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path}{anchor})"
        plain = text.strip("`")
        return f"`{path}`" if path.endswith(plain) else f"{text} (`{path}`)"

    return LINK.sub(replaced, markdown)
