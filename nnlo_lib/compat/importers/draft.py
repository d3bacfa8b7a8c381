"""An experiment in the making: settings with a comment each, remarks, and what has no counterpart."""

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
    """A key of the experiment, its value, and the words it comes from; missing: why it may not be here."""

    key: str
    value: Any
    source: str
    missing_reason: str = ""


@dataclass
class ExperimentDraft:
    """What was translated so far."""

    title: str
    settings: list[ImportedSetting] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    untranslatable: list[str] = field(default_factory=list)
    ineffective: list[str] = field(default_factory=list)
    given_words: list[str] = field(default_factory=list)  # all that was given

    def set(self, key: str, value: Any, said: str, missing: str = "") -> None:
        """Set a key; with `missing` only if experiments have it, else it is written as a comment."""
        self.settings.append(ImportedSetting(key, value, said, missing))

    def override(self, key: str, value: Any, said: str) -> None:
        """Set a key, whatever set it before."""
        self.settings = [setting for setting in self.settings if setting.key != key]
        self.set(key, value, said)

    def add_untranslatable(self, said: str, because: str) -> None:
        """Tell of an option that has no counterpart."""
        self.untranslatable.append(f"{said}: not here, because {because}")

    def translate_options(self, options: ParsedOptions) -> None:
        """Translate all options whose table says where they go."""
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
        """What was given and nothing tells of, so that nothing is left out silently."""
        told = [
            *self.remarks,
            *self.untranslatable,
            *self.ineffective,
            *(setting.source for setting in self.settings),
        ]
        return [word for word in self.given_words if not any(word in text for text in told)]

    def validated_settings(self) -> tuple[list[ImportedSetting], list[ImportedSetting]]:
        """Return the settings that experiments have today, and those that they do not have."""
        live = [setting for setting in self.settings if not setting.missing_reason]
        if refused := _refusal(live):
            raise UserError(f"this cannot be an experiment: {refused}")
        absent: list[ImportedSetting] = []
        for setting in self.settings:
            if setting.missing_reason:
                (absent if _refusal([*live, setting]) else live).append(setting)
        return live, absent


def split_defaults(settings: list[ImportedSetting]) -> tuple[list[ImportedSetting], list[ImportedSetting]]:
    """Return the settings that differ from our defaults, without what does not, and those that do not."""
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
    """Make a name of a folder of any text."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.") or "imported"


def nested(settings: list[ImportedSetting]) -> dict[str, Any]:
    """Return the settings as a mapping of blocks."""
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
    if run == "runs":  # with what it takes from the base
        block, path = block.variants[path[0]], path[1:]
    else:
        path = [run, *path]
    for part in path:
        block = block.get(part) if isinstance(block, dict) else getattr(block, part)
    return block


def _shortened(value: Any, block: Any) -> Any:
    """Leave out of a block what its kind has by default."""
    if not (isinstance(value, dict) and isinstance(block, ConfigModel)):
        return value
    fields = type(block).model_fields
    return {
        key: _shortened(inner, getattr(block, key))
        for key, inner in value.items()
        if key == "name" or getattr(block, key) != fields[key].default
    }
