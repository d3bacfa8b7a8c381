"""Draft of an imported experiment: settings with their sources, what differs from the old training, and the YAML text."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import ValidationError

from nnlo_lib.compat.importers.options import ParsedOptions
from nnlo_lib.config import Experiment
from nnlo_lib.config.base import non_defaults
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import inline_yaml
from nnlo_lib.experiment.load import has_automatic_gpus, with_numbers_of_gpus

WIDTH = 110
ORDER = ["name", *(key for key in Experiment.model_fields if key != "name")]
# Keys that decide what is trained: written as they are, so that the file is refused until they are filled in.
DECISIVE = re.compile(r"(model|data|loss|problem|train\.optimizer)(\..*)?")
Tree = dict[str, Any]  # nested mappings; leaves are values, or pairs (setting, True if experiments accept it)
MANY_GPUS = 1_000_000  # `gpus_per_rank: auto` then leaves `ranks_per_gpu` as it is written


class ImportedSetting(NamedTuple):
    """A dotted key of the experiment with its value, and the options or keys of the file from which it follows."""

    key: str
    value: Any
    source: str
    missing_reason: str = ""  # why experiments may reject the key or value


@dataclass
class ExperimentDraft:
    """What is translated so far."""

    title: str  # first line of the experiment's comment
    settings: list[ImportedSetting] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)  # sentences
    lost: list[str] = field(
        default_factory=list
    )  # options without an equivalent; a difference has the reason
    given: list[str] = field(default_factory=list)  # all options; those that nothing mentions have no effect

    def set(self, key: str, value: Any, source: str, missing: str = "") -> None:
        """Set a dotted key that follows from the options `source`.

        `missing` is the reason why experiments may reject it: it is then a comment, or a line to correct if it decides
        what is trained.
        """
        self.settings.append(ImportedSetting(key, value, source, missing))

    def override(self, key: str, value: Any, source: str) -> None:
        """Set a key and drop its earlier settings."""
        self.settings = [setting for setting in self.settings if setting.key != key]
        self.set(key, value, source)

    def note(self, *sentences: str) -> None:
        """Record differences, each once."""
        self.differences = list(dict.fromkeys([*self.differences, *sentences]))

    def lose(self, source: str, reason: str) -> None:
        """Record an option without an equivalent, and the reason."""
        self.note(f"{source}: not translated because {reason}")
        self.lost.append(source)

    def translate(self, options: ParsedOptions) -> None:
        """Translate all options for which the table has a key, a note or a missing_reason."""
        for name, spec in options.table.items():
            value, source, is_given = options[name], options.as_written(name), name in options
            self.given += [source] if is_given else []
            # The default of an omitted option is set as well, because nnlo's default may differ. Defaults of
            # None and False mean that the launcher does nothing.
            if spec.key and (is_given or value not in (None, False)) and spec.to(value) is not None:
                self.set(spec.key, spec.to(value), source, spec.missing_reason)
            if not is_given or value == spec.default:
                continue
            if spec.missing_reason and not spec.key:
                self.lose(source, spec.missing_reason)
            elif spec.note:
                self.note(f"{source}: {spec.note}")


def _fault(settings: list[ImportedSetting]) -> str | None:
    try:
        return None if _experiment(settings).variants else "it contains no run"
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'experiment'}: {first['msg']}"


def _experiment(settings: list[ImportedSetting]) -> Experiment:
    """Return the settings as an experiment on a host with many GPUs."""
    written = _nested({setting.key: setting.value for setting in settings})
    numbered = with_numbers_of_gpus(written, MANY_GPUS) if has_automatic_gpus(written) else written
    return Experiment.model_validate(numbered)


def _nested(leaves: Mapping[str, Any]) -> Tree:
    """Return nested mappings of leaves by dotted keys."""
    tree: Tree = {}
    for key, leaf in leaves.items():
        *path, last = key.split(".")
        block = tree
        for part in path:
            block = block.setdefault(part, {})
        block[last] = leaf
    return tree


def named(text: str) -> str:
    """Return a valid folder name derived from any text."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.") or "imported"


class ImportedExperiment(NamedTuple):
    """An experiment as YAML, and the sentence that counts the options that it lacks, empty if it lacks none."""

    text: str
    count_line: str


def render_import(draft: ExperimentDraft, text: str) -> ImportedExperiment:
    """Return the draft as YAML with the count of its untranslated options; `text` is the imported command or file name."""
    live = [setting for setting in draft.settings if not setting.missing_reason]
    if fault := _fault(live):
        raise UserError(f"the imported experiment is not valid: {fault}")
    absent: list[ImportedSetting] = []
    # One at a time on top of the accepted settings, so that a rejected setting does not cause others to be rejected.
    for setting in draft.settings:
        if setting.missing_reason:
            (absent if _fault([*live, setting]) else live).append(setting)
    differing, same = split_defaults(live)
    # An option counts as mentioned if it occurs in any text: all texts quote options through `as_written`.
    texts = [*draft.differences, *(setting.source for setting in draft.settings)]
    idle = [word for word in draft.given if not any(word in each for each in texts)]
    idle += [f"{each.source} ({each.key})" for each in same if not each.source.startswith("by default")]
    if idle:
        draft.note(f"Without effect, or equal to the defaults: {'; '.join(idle)}")
    head = [*_wrapped(draft.title), *_wrapped(text, "#   ")]
    head += ["#", "# Differences:"] if draft.differences else []
    for sentence in draft.differences:
        first, *rest = _wrapped(sentence, "#     ")
        head += [f"#   - {first.removeprefix('#     ')}", *rest]
    leaves = {setting.key: (setting, True) for setting in differing}
    for setting in absent:
        key = setting.key
        while key in leaves:  # a rejected setting may have the same key as an accepted one
            key += " "
        leaves[key] = setting, False
    tree = dict(sorted(_nested(leaves).items(), key=lambda item: (*ORDER, item[0]).index(item[0])))
    lost, given = dict.fromkeys([*draft.lost, *(setting.source for setting in absent)]), set(draft.given)
    # A part of the input that no option states, such as an unknown data set, counts as one more.
    extra = [each for each in lost if not any(word in each for word in given)]
    verb, options = "was" if len(lost) == 1 else "were", max(len(given) + len(extra), len(lost))
    count_line = f"{len(lost)} of {options} options {verb} not translated: {'; '.join(lost)}" if lost else ""
    lines = [*head, *_block(tree, ""), *_wrapped(count_line)]
    return ImportedExperiment("\n".join(lines) + "\n", count_line)


def split_defaults(settings: list[ImportedSetting]) -> tuple[list[ImportedSetting], list[ImportedSetting]]:
    """Return the settings that differ from nnlo's defaults, reduced to the differences, and the others."""
    whole = _experiment(settings)
    # An experiment has no search by default; its keys must exist to be compared.
    default = Experiment(search=SearchConfig() if whole.search else None)
    differing, same = [], []
    for setting in settings:
        value = _at(whole, setting.key)
        # A key of a run that equals nnlo's default may still override the experiment's own value.
        if not setting.key.startswith("runs.") and value == _at(default, setting.key):
            same.append(setting)
        else:
            differing.append(setting._replace(value=_shared(setting.value, non_defaults(value))))
    return differing, same


def _at(block: Any, key: str) -> Any:
    path = key.split(".")
    if path[0] == "runs":  # a run with the settings inherited from the base
        block, path = block.variants[path[1]], path[2:]
    for part in path:
        block = block.get(part) if isinstance(block, dict) else getattr(block, part)
    return block


def _shared(written: Any, differing: Any) -> Any:
    """Return a section as it is written, without the keys that `differing` lacks."""
    if not (isinstance(written, dict) and isinstance(differing, dict)):
        return written
    return {key: _shared(value, differing[key]) for key, value in written.items() if key in differing}


def _block(tree: Tree, indent: str) -> Iterator[str]:
    for key, node in tree.items():
        if isinstance(node, tuple):
            yield from _leaf(key, node[0], node[1], indent)
            continue
        inner = list(_block(node, indent + "  "))
        # A section with only comments is itself a comment, because YAML would read it as null.
        is_live = any(not line.lstrip().startswith("#") for line in inner)
        yield f"{indent}{'' if is_live else '# '}{key}:"
        yield from inner


def _leaf(key: str, setting: ImportedSetting, is_live: bool, indent: str) -> Iterator[str]:
    line = f"{indent}{key.strip()}: {inline_yaml(setting.value)}"
    if not is_live:
        # A key of the same name that is accepted stays.
        is_open = DECISIVE.fullmatch(setting.key) and not key.endswith(" ")
        end = "; correct this line" if is_open else ""
        reason = f"{setting.source}: not translated because {setting.missing_reason}{end}"
        yield from _wrapped(reason, f"{indent}# ")
        yield line if is_open else f"{indent}# {line.lstrip()}"
        return
    if len(line + setting.source) + 4 <= WIDTH:
        yield f"{line}  # {setting.source}"
        return
    yield from _wrapped(setting.source, f"{indent}# ")
    if len(line) <= WIDTH or not isinstance(setting.value, dict):
        yield line
    else:
        yield f"{indent}{key}:"
        yield from (f"{indent}  {inner}: {inline_yaml(value)}" for inner, value in setting.value.items())


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
