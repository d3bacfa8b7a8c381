"""Variables that settings name, and settings that are probably a mistake: written secrets, large inputs, stray labels."""

import math
import os
import re
from collections.abc import Iterator, Mapping

import numpy as np

from nnlo_lib.config import Experiment, Run
from nnlo_lib.core.secrets import VARIABLE, mask, mask_settings, resolve
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.preflight.data_check import Mistakes, class_counts

MAX_LISTED_CLASSES = 20
LARGE_INPUT = 30.0  # root mean square of an input, beyond which usual learning rates diverge


def check_variables(run: Run, mistakes: Mistakes) -> None:
    """Add the variables of a run that are not set, and secrets that were masked."""
    for key, text in (
        ("data.source", run.data.source),
        ("data.stage_command", run.data.stage_command),
        ("resources.container", run.resources.container),
    ):
        with mistakes.collected(*key.split(".")):
            resolve(text or "", key)
    command = run.observe.notify or ""
    for variable in dict.fromkeys(VARIABLE.findall(command)):
        # The shell also has the variables that the command sets itself.
        is_set = variable in (*os.environ, "NNLO_EVENT", "NNLO_MESSAGE", "NNLO_FOLDER")
        if not is_set and not re.search(rf"(?<![${{\w]){variable}\b", command):
            unset = f"the environment variable {variable} is not set; `export {variable}=...`"
            mistakes.add(("observe", "notify"), unset)


def written_secrets(experiment: Experiment, runs: Mapping[str, Run]) -> Iterator[str]:
    """Yield a sentence for each setting with a password or token that the results would keep in plain text."""
    settings = (each.model_dump(mode="json") for each in (experiment, *runs.values()))
    for key in dict.fromkeys(key for each in settings for key in _written(each, "")):
        yield (
            f"{key}: has a password or token; write ${{VARIABLE}} in its place, and export the variable. Pages and logs show ***, "
            "but this file and config.json keep it"
        )


def _written(value: object, key: str) -> Iterator[str]:
    """Yield the dotted keys of the texts with secrets."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _written(each, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        yield from [key] * (mask_settings(value) != value)
    elif isinstance(value, str) and mask(value) != value:
        yield key


def large_inputs(run: Run, manifest: DataManifest) -> str:
    """Return a warning about columns of a table with large numbers that are not standardized; empty without any."""
    if not manifest.columns or run.data.normalize != "unit":
        return ""
    names = [each.name for each in manifest.columns for _ in (each.values if each.one_hot else [0])]
    size = dict(zip(names, map(math.hypot, manifest.inputs[0].mean, manifest.inputs[0].std), strict=True))
    if size[first := max(names, key=lambda name: size[name])] <= LARGE_INPUT:
        return ""
    return (
        f"data.normalize: the model gets the numbers of {first} (about {size[first]:,.3g}) as they are, which trains badly; "
        "set data.normalize: standard"
    )


def stray_class(run: Run, manifest: DataManifest) -> str:
    """Return a warning about classes of a data set of the user that no training sample has; empty without any."""
    data, names = run.data.dataset, manifest.class_labels
    if data in CATALOG or manifest.classes is None or run.problem.name != "classification":
        return ""
    counts = class_counts(run, manifest)
    empty = [names[each] for each in np.flatnonzero(counts["train"] == 0)] if counts else []
    if not (counts and empty):
        return ""
    more = ", ..." if len(empty) > MAX_LISTED_CLASSES else ""
    return (
        f"data: no training sample of {data} has the class {', '.join(empty[:MAX_LISTED_CLASSES])}{more}, but the model gets an "
        f"output for each of {len(names)} classes; is the largest label, {names[-1]}, a mistake? Samples with it: {counts['train'][-1]:,}"
    )
