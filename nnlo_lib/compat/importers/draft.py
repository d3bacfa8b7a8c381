"""Draft of an imported experiment: settings with their sources, remarks, options without a counterpart."""

import re
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from nnlo_lib.compat.importers.options import ParsedOptions
from nnlo_lib.config import ConfigModel, Experiment
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.errors import UserError


@dataclass(frozen=True)
class ImportedSetting:
    """A key of the experiment with its value.

    Attributes:
        key: dotted key.
        value: its value.
        source: the words of the command or file from which it follows.
        missing_reason: why experiments may lack the key or value; empty if they always have it.
    """

    key: str
    value: Any
    source: str
    missing_reason: str = ""


@dataclass
class ExperimentDraft:
    """All that is translated so far.

    Attributes:
        title: first line of the experiment's comment.
        settings: keys with their values and sources.
        remarks: differences in meaning.
        untranslatable: options without a counterpart, with the reason.
        ineffective: options without effect.
        given_words: all options as they were written.
    """

    title: str
    settings: list[ImportedSetting] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    untranslatable: list[str] = field(default_factory=list)
    ineffective: list[str] = field(default_factory=list)
    given_words: list[str] = field(default_factory=list)  # see `unmentioned_words`

    def set(self, key: str, value: Any, said: str, missing: str = "") -> None:
        """Set a key.

        Args:
            key: dotted key of the experiment.
            value: its value.
            said: the words from which it follows.
            missing: reason why experiments may lack it; if they do, the setting is written as a comment.
        """
        self.settings.append(ImportedSetting(key, value, said, missing))

    def override(self, key: str, value: Any, said: str) -> None:
        """Set a key and drop its earlier settings."""
        self.settings = [setting for setting in self.settings if setting.key != key]
        self.set(key, value, said)

    def add_untranslatable(self, said: str, because: str) -> None:
        """Record an option without a counterpart, and the reason."""
        self.untranslatable.append(f"{said}: not here, because {because}")

    def translate_options(self, options: ParsedOptions) -> None:
        """Translate all options for which the table has a key, a note or a reason."""
        self.given_words += [options.as_written(name) for name, _ in options.given_options()]
        for name, option in options.table.items():
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
        """Given options that are mentioned nowhere in the draft, so that no option is dropped silently."""
        told = [
            *self.remarks,
            *self.untranslatable,
            *self.ineffective,
            *(setting.source for setting in self.settings),
        ]
        return [word for word in self.given_words if not any(word in text for text in told)]

    def validated_settings(self) -> tuple[list[ImportedSetting], list[ImportedSetting]]:
        """Return the settings that experiments support, and the others.

        Raises UserError if the settings without a `missing_reason` make no experiment.
        """
        live = [setting for setting in self.settings if not setting.missing_reason]
        if refused := _refusal(live):
            raise UserError(f"this cannot be an experiment: {refused}")
        absent: list[ImportedSetting] = []
        for setting in self.settings:
            if setting.missing_reason:
                (absent if _refusal([*live, setting]) else live).append(setting)
        return live, absent


def split_defaults(settings: list[ImportedSetting]) -> tuple[list[ImportedSetting], list[ImportedSetting]]:
    """Return the settings that differ from our defaults, reduced to the differences, and the others."""
    whole = Experiment.model_validate(nested(settings))
    search = SearchConfig() if whole.search else None
    default = Experiment(search=search)
    differing, same = [], []
    for setting in settings:
        value = _at(whole, setting.key)
        if not setting.key.startswith("runs.") and value == _at(default, setting.key):
            same.append(setting)
        else:
            shown = _shortened(setting.value, value)
            differing.append(ImportedSetting(setting.key, shown, setting.source))
    return differing, same


def named(text: str) -> str:
    """Return a folder name made from any text."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.") or "imported"


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


def _refusal(settings: list[ImportedSetting]) -> str | None:
    try:
        return None if Experiment.model_validate(nested(settings)).variants else "it has no run"
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'experiment'}: {first['msg']}"


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
    """Return a block without the keys that have the defaults of its type."""
    if not (isinstance(value, dict) and isinstance(block, ConfigModel)):
        return value
    fields = type(block).model_fields
    return {
        key: _shortened(inner, getattr(block, key))
        for key, inner in value.items()
        if key == "name" or getattr(block, key) != fields[key].default
    }
