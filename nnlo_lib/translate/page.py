"""The experiment as text: YAML in which every setting says where it comes from."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from nnlo_lib.config import Experiment
from nnlo_lib.reference.blocks import flow
from nnlo_lib.translate.draft import Draft, Setting, brief

WIDTH = 110
ORDER = ["name", *(key for key in Experiment.model_fields if key != "name")]
Tree = dict[str, Any]  # of trees, or at its leaves of (setting, whether it is there)


def page(draft: Draft, text: str) -> str:
    """Write a draft of the command `text`."""
    live, absent = draft.settled()
    differing, same = brief(live)
    idle = [
        *draft.idle,
        *draft.without_effect,
        *(f"{each.said} ({each.key})" for each in same if not each.said.startswith("by default")),
    ]
    head = [
        *_wrapped(draft.title),
        *_wrapped(text, "#   "),
        *_paragraph("What differs in meaning:", draft.remarks),
        *_paragraph("No counterpart:", draft.absent),
        *_paragraph(
            "As it is here by default, or without effect beside the rest:", ["; ".join(idle)] if idle else []
        ),
    ]
    tree = _tree([(each, True) for each in differing] + [(each, False) for each in absent])
    return "\n".join([*head, *_block(tree, "")]) + "\n"


def _tree(leaves: Iterable[tuple[Setting, bool]]) -> Tree:
    tree: Tree = {}
    for setting, there in leaves:
        *path, last = setting.key.split(".")
        block = tree
        for part in path:
            block = block.setdefault(part, {})
        while last in block:  # one that is not here, beside one that is
            last += " "
        block[last] = setting, there
    return dict(sorted(tree.items(), key=lambda item: _place(item[0])))


def _place(key: str) -> int:
    return ORDER.index(key) if key in ORDER else len(ORDER)


def _block(tree: Tree, indent: str) -> Iterator[str]:
    for key, node in tree.items():
        if isinstance(node, tuple):
            setting, there = node
            yield from _leaf(key.strip(), setting, there, indent)
            continue
        inner = list(_block(node, indent + "  "))
        there = any(not line.lstrip().startswith("#") for line in inner)
        yield f"{indent}{'' if there else '# '}{key}:"
        yield from inner


def _leaf(key: str, setting: Setting, there: bool, indent: str) -> Iterator[str]:
    line = f"{key}: {flow(setting.value)}"
    if not there:
        yield from _wrapped(f"{setting.said}: not here, because {setting.missing}", f"{indent}# ")
        yield f"{indent}# {line}"
    elif len(indent + line + setting.said) + 4 <= WIDTH:
        yield f"{indent}{line}  # {setting.said}"
    elif len(indent + line) <= WIDTH or not isinstance(setting.value, dict):
        yield from _wrapped(setting.said, f"{indent}# ")
        yield indent + line
    else:
        yield from _wrapped(f"{key}:  # {setting.said}", indent)
        yield from (f"{indent}  {inner}: {flow(value)}" for inner, value in setting.value.items())


def _paragraph(title: str, texts: list[str]) -> Iterator[str]:
    if texts:
        yield "#"
        yield f"# {title}"
    for text in texts:
        first, *rest = _wrapped(text, "#     ")
        yield f"#   - {first.removeprefix('#     ')}"
        yield from rest


def _wrapped(text: str, start: str = "# ") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )
