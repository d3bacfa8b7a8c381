"""Draft of an imported experiment: settings with their sources, remarks, options without an equivalent; its YAML text."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from nnlo_lib.compat.importers.options import ParsedOptions
from nnlo_lib.config import ConfigModel, Experiment
from nnlo_lib.config.docgen.schema import inline_yaml
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import has_automatic_gpus, with_numbers_of_gpus

WIDTH = 110
ORDER = ["name", *(key for key in Experiment.model_fields if key != "name")]
# Keys that decide what is trained: written as they are, so that the file is refused until they are filled in.
DECISIVE = re.compile(r"(model|data|loss|problem|train\.optimizer)(\..*)?")
Tree = dict[str, Any]  # nested trees; the leaves are (setting, True if experiments accept it)
MANY_GPUS = 1_000_000  # `gpus_per_rank: auto` then leaves `ranks_per_gpu` as it is written


@dataclass(frozen=True)
class ImportedSetting:
    """A key of the experiment with its value.

    Attributes:
        key: dotted key.
        value: value of the key.
        source: options of the command, or keys of the file, from which the setting follows.
        missing_reason: reason why experiments may reject the key or value; empty if they always accept it.
    """

    key: str
    value: Any
    source: str
    missing_reason: str = ""


@dataclass
class ExperimentDraft:
    """Settings and remarks that are translated so far.

    Attributes:
        title: first line of the experiment's comment.
        settings: keys with their values and sources.
        remarks: differences in behavior.
        untranslatable: options without an equivalent, with the reason.
        untranslated_sources: options without an equivalent, as they were written.
        ineffective: options without effect.
        given_words: all options as they were written.
        lines: lines of a script without an effect on the experiment, with their meaning.
    """

    title: str
    settings: list[ImportedSetting] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    untranslatable: list[str] = field(default_factory=list)
    untranslated_sources: list[str] = field(default_factory=list)
    ineffective: list[str] = field(default_factory=list)
    given_words: list[str] = field(default_factory=list)  # see `unmentioned_words`
    lines: list[str] = field(default_factory=list)

    def set(self, key: str, value: Any, source: str, missing: str = "") -> None:
        """Set a dotted key.

        Args:
            source: options or keys from which the setting follows.
            missing: reason why experiments may reject the setting; if they do, it is written as a comment, or as a line to
                correct if it decides what is trained.
        """
        self.settings.append(ImportedSetting(key, value, source, missing))

    def override(self, key: str, value: Any, source: str) -> None:
        """Set a key and drop its earlier settings."""
        self.settings = [setting for setting in self.settings if setting.key != key]
        self.set(key, value, source)

    def add_untranslatable(self, source: str, reason: str) -> None:
        """Record an option without an equivalent, and the reason."""
        self.untranslatable.append(f"{source}: not translated because {reason}")
        self.untranslated_sources.append(source)

    def translate_options(self, options: ParsedOptions) -> None:
        """Translate all options for which the table has a key, a note or a missing_reason."""
        self.given_words += [options.as_written(name) for name, _ in options.given_options()]
        for name, option in options.table.items():
            # The default of an omitted option is set as well, because nnlo's default may differ. Defaults of
            # None and False mean that the launcher does nothing.
            if option.key and not (name not in options and option.default in (None, False)):
                self.set(option.key, options[name], options.as_written(name), option.missing_reason)
        for name, option in options.given_options():
            if option.key or not (option.note or option.missing_reason):
                continue
            if options[name] == option.default:
                self.ineffective.append(options.as_written(name))
            elif option.missing_reason:
                self.add_untranslatable(options.as_written(name), option.missing_reason)
            else:
                self.remarks.append(f"{options.as_written(name)}: {option.note}")

    @property
    def unmentioned_words(self) -> list[str]:
        """Given options that no other part of the draft mentions, so that no option is dropped silently."""
        # A word counts as mentioned if it occurs in any text: all texts quote options through `as_written`.
        texts = [
            *self.remarks,
            *self.untranslatable,
            *self.ineffective,
            *(setting.source for setting in self.settings),
        ]
        return [word for word in self.given_words if not any(word in text for text in texts)]

    def validated_settings(self) -> tuple[list[ImportedSetting], list[ImportedSetting]]:
        """Return the settings that experiments accept, and the rejected ones.

        Raises UserError if the settings without a `missing_reason` are not a valid experiment.
        """
        live = [setting for setting in self.settings if not setting.missing_reason]
        if fault := _fault(live):
            raise UserError(f"the imported experiment is not valid: {fault}")
        absent: list[ImportedSetting] = []
        # One at a time on top of the accepted settings, so that a rejected setting does not cause others to
        # be rejected.
        for setting in self.settings:
            if setting.missing_reason:
                (absent if _fault([*live, setting]) else live).append(setting)
        return live, absent


def _fault(settings: list[ImportedSetting]) -> str | None:
    try:
        return None if _experiment(settings).variants else "it contains no run"
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'experiment'}: {first['msg']}"


def _experiment(settings: list[ImportedSetting]) -> Experiment:
    """Return the settings as an experiment on a host with many GPUs."""
    written = nested(settings)
    numbered = with_numbers_of_gpus(written, MANY_GPUS) if has_automatic_gpus(written) else written
    return Experiment.model_validate(numbered)


def nested(settings: list[ImportedSetting]) -> dict[str, Any]:
    """Return the settings as nested mappings."""
    tree: dict[str, Any] = {}
    for setting in settings:
        *path, last = setting.key.split(".")
        block = tree
        for part in path:
            block = block.setdefault(part, {})
        block[last] = setting.value
    return tree


def named(text: str) -> str:
    """Return a valid folder name derived from any text."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.") or "imported"


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


def render_import(draft: ExperimentDraft, text: str) -> ImportedExperiment:
    """Return the draft as YAML with the count of its untranslated options; `text` is the imported command or file name."""
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


def split_defaults(settings: list[ImportedSetting]) -> tuple[list[ImportedSetting], list[ImportedSetting]]:
    """Return the settings that differ from nnlo's defaults, reduced to the differences, and the others."""
    whole = _experiment(settings)
    # An experiment has no search by default; its keys must exist to be compared.
    search = SearchConfig() if whole.search else None
    default = Experiment(search=search)
    differing, same = [], []
    for setting in settings:
        value = _at(whole, setting.key)
        # A key of a run that equals nnlo's default may still override the experiment's own value.
        if not setting.key.startswith("runs.") and value == _at(default, setting.key):
            same.append(setting)
        else:
            shown = _shortened(setting.value, value)
            differing.append(ImportedSetting(setting.key, shown, setting.source))
    return differing, same


def _at(block: Any, key: str) -> Any:
    run, *path = key.split(".")
    if run == "runs":  # a run with the settings inherited from the base
        block, path = block.variants[path[0]], path[1:]
    else:
        path = [run, *path]
    for part in path:
        block = block.get(part) if isinstance(block, dict) else getattr(block, part)
    return block


def _shortened(value: Any, block: Any) -> Any:
    """Return a section without the keys that have their default values."""
    if not (isinstance(value, dict) and isinstance(block, ConfigModel)):
        return value
    fields = type(block).model_fields
    return {
        key: _shortened(inner, getattr(block, key))
        for key, inner in value.items()
        # `name` selects the type of the section, and with it the other keys.
        if key == "name" or getattr(block, key) != fields[key].default
    }


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
    return dict(
        sorted(tree.items(), key=lambda item: ORDER.index(item[0]) if item[0] in ORDER else len(ORDER))
    )


def _block(tree: Tree, indent: str) -> Iterator[str]:
    for key, node in tree.items():
        if isinstance(node, tuple):
            setting, there = node
            yield from _leaf(key, setting, there, indent)
            continue
        inner = list(_block(node, indent + "  "))
        # A section with only comments is itself a comment, because YAML would read it as null.
        there = any(not line.lstrip().startswith("#") for line in inner)
        yield f"{indent}{'' if there else '# '}{key}:"
        yield from inner


def _leaf(key: str, setting: ImportedSetting, there: bool, indent: str) -> Iterator[str]:
    line = f"{key.strip()}: {inline_yaml(setting.value)}"
    if not there:
        # A key of the same name that is accepted stays.
        is_open = DECISIVE.fullmatch(setting.key) and not key.endswith(" ")
        end = "; correct this line" if is_open else ""
        yield from _wrapped(
            f"{setting.source}: not translated because {setting.missing_reason}{end}", f"{indent}# "
        )
        yield f"{indent}{'' if is_open else '# '}{line}"
    elif len(indent + line + setting.source) + 4 <= WIDTH:
        yield f"{indent}{line}  # {setting.source}"
    elif len(indent + line) <= WIDTH or not isinstance(setting.value, dict):
        yield from _wrapped(setting.source, f"{indent}# ")
        yield indent + line
    else:
        fits = len(indent + key + setting.source) + 5 <= WIDTH
        yield from [] if fits else _wrapped(setting.source, f"{indent}# ")
        yield f"{indent}{key}:" + (f"  # {setting.source}" if fits else "")
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
