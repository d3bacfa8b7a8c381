"""All values that reach the template of a page equal a record that was read by a person: one page of each kind.

After a change that is meant, renew the records and read what `git diff tests/report/contexts` shows:

    NNLO_RECORD=1 pytest tests/report/test_page_context.py

Empty values and False are left out; numbers have four digits.
"""

import json
import os
from dataclasses import fields, is_dataclass
from functools import cached_property
from numbers import Real
from pathlib import Path
from types import FunctionType, ModuleType

import jinja2
import numpy as np
import pandas as pd
import pytest
from helpers.synthetic_runs import change_json
from helpers.synthetic_search import MadeUp
from PIL import Image

from nnlo_lib.report.figure import Figure
from nnlo_lib.report.page import write_search_page

RECORDS = Path(__file__).parent / "contexts"
# What pages of all kinds have alike: only in the record of the classification.
ALIKE = (
    "models", "layer_headings", "packages", "commands", "experiment", "experiment_file", "times", "volumes",
)  # fmt: skip
WIDTH = 160  # characters of a line of a record


def classification(fake):
    """Six trainings of two runs: one was interrupted, one restored its best weights; a seventh failed."""
    for seed in (1, 2, 3):
        fake.job("allreduce", seed, epochs=3, classes=3, level=0.95)
        fake.job(
            "downpour",
            seed,
            epochs=3,
            classes=3,
            level=0.75,
            speed=7400,
            roles=("server", "worker", "worker"),
        )
    first, second = fake.folders[:2]
    fake.attempts(first, ("preempted", 4, 0, 60, 50), ("finished", 2, 50, 123, 123))
    fake.change(first, training_seconds=300.0)
    restoring = {
        "algorithm": {"name": "downpour"},
        "parallel": {"ranks": 3},
        "train": {"restore_best": "val_loss"},
    }
    fake.change(second, published_step=50, config=restoring, histograms={"staleness": {"0": 2, "3": 2}})
    within = {"epoch": [0, 1], "step": [0, 50], "seconds": [0.0, 0.3], "val_loss": [2.5, 0.7]}
    pd.DataFrame(within).to_csv(second / "validations.csv", index=False)
    usage = {
        "seconds": [0.0, 0.0, 1.0, 1.0],
        "rank": [0, 1] * 2,
        "host": "h",
        "cpu_percent": [90, 80, 70, 60],
    }
    usage |= {"memory_bytes": 5e8, "host_cpu_percent": 50, "host_memory_bytes": 4e9}
    pd.DataFrame(usage | {"gpu_percent": "", "gpu_memory_bytes": ""}).to_csv(
        first / "monitor.csv", index=False
    )
    fake.attempts(fake.root / "downpour/seed-4", ("diverged", 1, 0, 9, 0))


def gan(fake):
    """Runs of a GAN are not ranked; each shows the samples of its first seed."""
    for run, distance in (("wgan", 0.1), ("slow", 0.5)):
        config = {
            "parallel": {"ranks": 2},
            "loss": "wasserstein",
            "metrics": [],
            "algorithm": {"name": "allreduce"},
        }
        config["problem"] = {
            "name": "gan",
            "gradient_penalty": 10.0,
            "critic_steps": 3,
            "energy_weight": None,
        }
        for seed in (1, 2):
            folder = fake.job(run, seed, epochs=2, accuracy=False, config=config)
            change_json(folder / "evaluation.json", distance=distance, critic_loss=-distance)
            fake.add_to_history(folder, val_distance=distance, val_critic_loss=-distance)
            Image.new("L", (4, 4), 9 * seed).save(folder / "samples.png")


def graph(fake):
    """Nodes with models of their own, simulated, one run with compressed messages; beside it, a run with MPI."""
    for run, compression in (("dsgd", "none"), ("packed", "top_k")):
        for seed in (1, 2):
            fake.gossip(run, seed, epochs=2, classes=3, compression=compression, worst=0.3)
    nodes = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    np.savez(fake.folders[0] / "consensus.npz", distance_82=nodes)
    fake.job("allreduce", 1, epochs=2, classes=3)


def search(root):
    """Ten trials with two folds by ASHA; one failed, one is not done."""
    made = MadeUp(root, folds={"k": 2}, fidelity={"name": "asha", "first": 1})
    for number in range(8):
        made.trial(rungs=[1, 3, 9][: 1 + (number % 2) + (number % 4 == 3)])
    return made.trial(status="failed", error="boom").trial(done=False)


def digest(value, root):
    """Return a value of the template as JSON: dataclasses with their properties, without what is empty."""
    if isinstance(value, Figure):  # test_figures.py reads the specifications
        return digest([value.title, value.note, value.text, value.headings, value.rows], root)
    if is_dataclass(value):
        kind = type(value)
        names = [
            name
            for name, each in vars(kind).items()
            if isinstance(each, property | cached_property) and not name.startswith("_")
        ]
        value = {name: getattr(value, name) for name in [*(each.name for each in fields(kind)), *names]}
    if isinstance(value, dict):
        found = {_key(key): digest(each, root) for key, each in value.items() if not _is_code(each)}
        return {
            key: each for key, each in found.items() if each is not False and each not in ("", None, [], {})
        }
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple | set):
        return [digest(each, root) for each in value]
    if isinstance(value, Real) and not isinstance(value, bool):
        return int(value) if value == value // 1 and abs(value) < 1e15 else _four_digits(float(value))
    return value if isinstance(value, bool | None) else str(value).replace(str(root), "ROOT")


def _key(key):
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _is_code(value):
    return isinstance(value, FunctionType | ModuleType | type)


def _four_digits(value):
    return "nan" if value != value else float(f"{value:.4g}")


def lines(value, indent=""):
    """Return JSON in lines that are filled: each begins with a part, and holds as many parts as fit."""
    text = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(text) <= WIDTH or not isinstance(value, dict | list):
        return text
    deeper, filled = indent + " ", [""]
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        part = f"{json.dumps(key)}: {lines(each, deeper)}" if isinstance(value, dict) else lines(each, deeper)
        if len(deeper) + len(filled[-1]) + len(part) + 2 > WIDTH or "\n" in filled[-1] + part:
            filled.append("")
        filled[-1] += f"{part}, "
    body = "\n".join(f"{deeper}{line.strip()}" for line in filled if line)[:-1]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{body}\n{indent}{end}"


@pytest.mark.parametrize("kind", [classification, gan, graph, search], ids=lambda kind: kind.__name__)
def test_the_values_of_a_page_equal_their_record(kind, fake, report, monkeypatch):
    seen = {}
    render = jinja2.Template.render
    monkeypatch.setattr(
        jinja2.Template, "render", lambda page, **values: seen.update(values) or render(page, **values)
    )
    if kind is search:
        write_search_page(fake.root / "report.html", search(fake.root).folder)
    else:
        kind(fake)
        failed = {path: "" for path in fake.root.glob("*/*") if path.is_dir() and path not in fake.folders}
        report(fake, failed=failed)
    for name in ["scripts", *([] if kind is classification else ALIKE)]:
        seen.pop(name, None)
    found = lines(digest(seen, fake.root)).splitlines()
    record = RECORDS / f"{kind.__name__}.json"
    if os.environ.get("NNLO_RECORD"):
        record.write_text("\n".join([*found, ""]))
    assert found == record.read_text().splitlines(), (
        f"see {Path(__file__).name} on how to renew {record.name}"
    )
