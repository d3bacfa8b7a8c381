"""Experiment as YAML text, with a comment on the source of each setting."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft, ImportedSetting, split_defaults
from nnlo_lib.config import Experiment
from nnlo_lib.config.docgen.schema_tree import inline_yaml

WIDTH = 110
ORDER = ["name", *(key for key in Experiment.model_fields if key != "name")]
Tree = dict[str, Any]  # nested trees; the leaves are (setting, True if experiments accept it)


@dataclass(frozen=True)
class ImportedExperiment:
    """An experiment as YAML, and the options that it lacks.

    Attributes:
        text: the experiment.
        untranslated: options without an equivalent, as they were written.
        option_count: number of all options.
    """

    text: str
    untranslated: tuple[str, ...]
    option_count: int

    @property
    def count_line(self) -> str:
        """Sentence with the number of untranslated options, or an empty string if all are translated."""
        if not self.untranslated:
            return ""
        count = len(self.untranslated)
        return (
            f"{count} of {self.option_count} options {'was' if count == 1 else 'were'} not translated: "
            + "; ".join(self.untranslated)
        )


def render_yaml(draft: ExperimentDraft, text: str) -> str:
    """Return the draft as YAML; `text` is the imported command or file name."""
    return render_import(draft, text).text


def render_import(draft: ExperimentDraft, text: str) -> ImportedExperiment:
    """Return the draft as YAML with the count of its untranslated options.

    Args:
        draft: the settings and remarks.
        text: the imported command or file name.
    """
    live, absent = draft.validated_settings()
    differing, same = split_defaults(live)
    idle = [
        *draft.ineffective,
        *draft.unmentioned_words,
        *(f"{each.source} ({each.key})" for each in same if not each.source.startswith("by default")),
    ]
    head = [
        *_wrapped(draft.title),
        *_wrapped(text, "#   "),
        *_paragraph("Differences in behavior:", draft.remarks),
        *_paragraph("Options without an equivalent:", draft.untranslatable),
        *_paragraph("Options without effect, or equal to the defaults:", ["; ".join(idle)] if idle else []),
        *_paragraph("Other lines of the script:", draft.lines),
    ]
    tree = _tree([(each, True) for each in differing] + [(each, False) for each in absent])
    lost = tuple(dict.fromkeys([*draft.untranslated_sources, *(each.source for each in absent)]))
    given = set(draft.given_words)
    # A part of the input that no option states, such as an unknown data set, counts as one more.
    extra = [each for each in lost if not any(word in each for word in given)]
    imported = ImportedExperiment("", lost, max(len(given) + len(extra), len(lost)))
    tail = _wrapped(imported.count_line) if lost else []
    return replace(imported, text="\n".join([*head, *_block(tree, ""), *tail]) + "\n")


def _tree(leaves: Iterable[tuple[ImportedSetting, bool]]) -> Tree:
    tree: Tree = {}
    for setting, there in leaves:
        *path, last = setting.key.split(".")
        block = tree
        for part in path:
            block = block.setdefault(part, {})
        while last in block:  # a rejected setting may have the same key as an accepted one
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
        # A section with only comments is itself a comment, because YAML would read it as null.
        there = any(not line.lstrip().startswith("#") for line in inner)
        yield f"{indent}{'' if there else '# '}{key}:"
        yield from inner


def _leaf(key: str, setting: ImportedSetting, there: bool, indent: str) -> Iterator[str]:
    line = f"{key}: {inline_yaml(setting.value)}"
    if not there:
        yield from _wrapped(
            f"{setting.source}: not translated because {setting.missing_reason}", f"{indent}# "
        )
        yield f"{indent}# {line}"
    elif len(indent + line + setting.source) + 4 <= WIDTH:
        yield f"{indent}{line}  # {setting.source}"
    elif len(indent + line) <= WIDTH or not isinstance(setting.value, dict):
        yield from _wrapped(setting.source, f"{indent}# ")
        yield indent + line
    else:
        yield from _wrapped(f"{key}:  # {setting.source}", indent)
        yield from (f"{indent}  {inner}: {inline_yaml(value)}" for inner, value in setting.value.items())


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
        # Options such as --sync-every and paths must stay in one piece to be copied.
        break_long_words=False,
        break_on_hyphens=False,
    )
