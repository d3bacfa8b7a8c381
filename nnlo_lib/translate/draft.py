"""An experiment in the making: settings with a comment each, remarks, and what has no counterpart."""

import re
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from nnlo_lib.config import Experiment, Strict
from nnlo_lib.config.search import Search
from nnlo_lib.errors import UserError
from nnlo_lib.translate.options import Options


@dataclass(frozen=True)
class Setting:
    """A key of the experiment, its value, and the words it comes from; missing: why it may not be here."""

    key: str
    value: Any
    said: str
    missing: str = ""


@dataclass
class Draft:
    """What was translated so far."""

    title: str
    settings: list[Setting] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)  # all that was given

    def set(self, key: str, value: Any, said: str, missing: str = "") -> None:
        """Set a key; with `missing` only if experiments have it, else it is written as a comment."""
        self.settings.append(Setting(key, value, said, missing))

    def override(self, key: str, value: Any, said: str) -> None:
        """Set a key, whatever set it before."""
        self.settings = [setting for setting in self.settings if setting.key != key]
        self.set(key, value, said)

    def later(self, said: str, because: str) -> None:
        """Tell of an option that has no counterpart."""
        self.absent.append(f"{said}: not here, because {because}")

    def carry(self, options: Options) -> None:
        """Translate all options whose table says where they go."""
        self.written += [options.said(name) for name, _ in options.given()]
        for name, option in options.table.items():
            if option.key and not (name not in options and option.default in (None, False)):
                self.set(option.key, options[name], options.said(name), option.missing)
        for name, option in options.given():
            if option.key or not (option.says or option.missing):
                continue
            if options[name] == option.default:
                self.idle.append(options.said(name))
            elif option.missing:
                self.later(options.said(name), option.missing)
            else:
                self.remarks.append(f"{options.said(name)}: {option.says}")

    @property
    def without_effect(self) -> list[str]:
        """What was given and nothing tells of, so that nothing is left out silently."""
        told = [*self.remarks, *self.absent, *self.idle, *(setting.said for setting in self.settings)]
        return [word for word in self.written if not any(word in text for text in told)]

    def settled(self) -> tuple[list[Setting], list[Setting]]:
        """Return the settings that experiments have today, and those that they do not have."""
        live = [setting for setting in self.settings if not setting.missing]
        if refused := _refusal(live):
            raise UserError(f"this cannot be an experiment: {refused}")
        absent: list[Setting] = []
        for setting in self.settings:
            if setting.missing:
                (absent if _refusal([*live, setting]) else live).append(setting)
        return live, absent


def brief(settings: list[Setting]) -> tuple[list[Setting], list[Setting]]:
    """Return the settings that differ from our defaults, without what does not, and those that do not."""
    whole = Experiment.model_validate(nested(settings))
    search = Search() if whole.search else None
    default = Experiment(search=search)
    differing, same = [], []
    for setting in settings:
        value = _at(whole, setting.key)
        if not setting.key.startswith("runs.") and value == _at(default, setting.key):
            same.append(setting)
        else:
            shown = _shortened(setting.value, value)
            differing.append(Setting(setting.key, shown, setting.said))
    return differing, same


def named(text: str) -> str:
    """Make a name of a folder of any text."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.") or "imported"


def nested(settings: list[Setting]) -> dict[str, Any]:
    """Return the settings as a mapping of blocks."""
    tree: dict[str, Any] = {}
    for setting in settings:
        *path, last = setting.key.split(".")
        block = tree
        for part in path:
            block = block.setdefault(part, {})
        block[last] = setting.value
    return tree


def _refusal(settings: list[Setting]) -> str | None:
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
    if not (isinstance(value, dict) and isinstance(block, Strict)):
        return value
    fields = type(block).model_fields
    return {
        key: _shortened(inner, getattr(block, key))
        for key, inner in value.items()
        if key == "name" or getattr(block, key) != fields[key].default
    }
