"""Checksum of what a job of the workflow does, by which a new Snakemake recognizes a job of an earlier one."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def task_checksum(rule: str, wildcards: Iterable[Any], params: Iterable[Any], inputs: Iterable[Any]) -> str:
    """Return a checksum that differs if rule, wildcards, parameters, or an input's name or content time differ.

    Args:
        rule: name of the rule.
        wildcards: values of the wildcards.
        params: values of the parameters.
        inputs: paths of the input files.
    """
    parts = {
        "rule": rule,
        "wildcards": [str(value) for value in wildcards],
        "params": [str(value) for value in params],
        "inputs": [(str(path), _modified(Path(str(path)))) for path in inputs],
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
