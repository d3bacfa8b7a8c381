"""Parser of Theano-MPI sessions: .cfg files, options of tmlauncher, and Python scripts with a rule."""

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

KEYS = {"RULE", "MODELFILE", "MODELCLASS", "DEVICES", "BSP_SYNC_TYPE", "BSP_EXCH_STRATEGY", "BIND", "SIZE"}
OPTION_KEYS = {
    "file": "MODELFILE", "modelfile": "MODELFILE", "class": "MODELCLASS", "modelclass": "MODELCLASS", "r": "RULE",
    "rule": "RULE", "s": "SIZE", "size": "SIZE", "bsp_sync_type": "BSP_SYNC_TYPE", "cfg": "", "config": "",
    "bsp_exch_strategy": "BSP_EXCH_STRATEGY", "b": "BIND", "bind": "BIND",
}  # fmt: skip
RULES = {"BSP", "EASGD", "GOSGD"}
ATTRIBUTES = {"sync_type": "BSP_SYNC_TYPE", "exch_strategy": "BSP_EXCH_STRATEGY"}


@dataclass(frozen=True)
class TheanoSession:
    """Keys of a session, and the original text of those that are not written as KEY=value.

    Raises UserError if a required key is missing or the rule is unknown.
    """

    keys: dict[str, str]
    written: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("RULE", "MODELFILE", "MODELCLASS", "DEVICES"):
            if not self.keys.get(key):
                raise UserError(
                    f"the Theano-MPI session lacks the required key {key}; set {key} in the session"
                )
        if self.keys["RULE"] not in RULES:
            raise UserError(
                f"RULE: Theano-MPI has no rule '{self.keys['RULE']}'; {suggest_name(self.keys['RULE'], RULES)}"
            )

    def as_written(self, key: str) -> str:
        """Return the original text of a key."""
        return self.written.get(key, f"{key}={self.keys.get(key, '')}")

    @property
    def hosts(self) -> list[list[str]]:
        """Devices of each host, parsed from `cuda0,cuda1` or `node0:cuda0 node1:cuda0,cuda1`."""
        return [group.rpartition(":")[2].split(",") for group in self.keys["DEVICES"].split()]


def session_from_options(words: Sequence[str]) -> TheanoSession:
    """Parse tmlauncher's options; keys of a .cfg file take precedence.

    Raises UserError if an option is unknown, or if the session is not valid.
    """
    keys: dict[str, str] = {}
    files = []
    for word in words:
        written, equals, value = word.partition("=")
        name = written.lstrip("-")
        if not word.startswith("-") or name not in OPTION_KEYS:
            raise UserError(f"tmlauncher: unknown option {written}; {suggest_name(name, OPTION_KEYS)}")
        if name in ("cfg", "config"):
            files.append(value)
        elif equals or name in ("b", "bind"):
            keys[OPTION_KEYS[name]] = value or "yes"
    # After the options, because tmlauncher lets the keys of its file take precedence.
    for name in files:
        keys |= session_from_cfg(Path(name)).keys
    return TheanoSession(keys)


def session_from_cfg(path: Path) -> TheanoSession:
    """Parse a .cfg file, which Theano-MPI reads with bash: KEY=value, KEY=("a" "b").

    Raises UserError if the file is unreadable or the session is not valid.
    """
    keys = {}
    # Parsed and not sourced, so that an import executes nothing; an array may extend over several lines.
    text = re.sub(r"=\(([^)]*)\)", lambda array: "=" + " ".join(array[1].split()), _text(path))
    for number, line in enumerate(text.splitlines(), start=1):
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals or name not in KEYS:
            raise UserError(f"{path}:{number}: unknown session key '{name}'; {suggest_name(name, KEYS)}")
        try:
            keys[name] = " ".join(shlex.split(value, comments=True))
        except ValueError as error:
            raise UserError(f"{path}:{number}: cannot parse the value ({error}); check its quotes") from error
    return TheanoSession(keys)


def session_from_python(path: Path) -> TheanoSession:
    """Parse a Python session: rule = BSP(); rule.init(devices=..., modelfile=..., modelclass=...).

    Raises UserError if the file is not Python, or if the session is not valid.
    """
    try:
        # Parsed and not imported, because Theano-MPI starts its ranks when the script runs.
        tree = ast.parse(_text(path))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: cannot parse the Python session: {error.msg}") from error
    keys, written = {}, {}
    for node in ast.walk(tree):
        for key, value in _python_keys(node):
            keys[key], written[key] = value, ast.unparse(node).splitlines()[0]
    return TheanoSession(keys, {key: text for key, text in written.items() if len(text) < 60})


def _python_keys(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in RULES:
            yield "RULE", name
        case ast.Call(func=ast.Attribute(attr="init")):
            for each in node.keywords:
                key = str(each.arg).upper()
                if key not in KEYS:
                    raise UserError(
                        f"rule.init(): unknown argument '{each.arg}'; use devices, modelfile and modelclass"
                    )
                yield key, _joined(each.value)
        case ast.Assign(targets=[ast.Attribute(attr=name)]) if name in ATTRIBUTES:
            yield ATTRIBUTES[name], _joined(node.value)


def _joined(node: ast.expr) -> str:
    try:
        value: Any = ast.literal_eval(node)
    except ValueError as error:
        raise UserError(
            f"cannot evaluate {ast.unparse(node)}; write literal values (strings, lists) in the session"
        ) from error
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def is_python_session(path: Path) -> bool:
    """Return True if a file is a Python session of Theano-MPI, which imports theanompi."""
    return path.suffix == ".py" and path.is_file() and bool(re.search(r"\btheanompi\b", _text(path)))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
