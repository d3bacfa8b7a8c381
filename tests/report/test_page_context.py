"""All that a reader of a page sees equals a record that was read by a person: one page of each kind.

After a change that is meant, renew the records and read what `git diff tests/report/contexts` shows:

    NNLO_RECORD=1 pytest tests/report/test_page_context.py
"""

import html
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.html_page import check
from helpers.synthetic_runs import change_json
from helpers.synthetic_search import MadeUp
from PIL import Image

from nnlo_lib.report.page import write_search_page

RECORDS = Path(__file__).parent / "contexts"


def classification(fake):
    """Six trainings of two runs: one was interrupted, one restored its best weights; a seventh failed."""
    for seed in (1, 2, 3):
        fake.job("allreduce", seed, epochs=3, classes=3, level=0.95)
        roles = ("server", "worker", "worker")
        fake.job("downpour", seed, epochs=3, classes=3, level=0.75, speed=7400, roles=roles)
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
    usage |= {"gpu_percent": "", "gpu_memory_bytes": ""}
    pd.DataFrame(usage).to_csv(first / "monitor.csv", index=False)
    fake.attempts(fake.root / "downpour/seed-4", ("diverged", 1, 0, 9, 0))


def gan(fake):
    """Runs of a GAN are not ranked; each shows the samples of its first seed."""
    for run, distance in (("wgan", 0.1), ("slow", 0.5)):
        problem = {"name": "gan", "gradient_penalty": 10.0, "critic_steps": 3, "energy_weight": None}
        config = {"parallel": {"ranks": 2}, "loss": "wasserstein", "metrics": [], "problem": problem}
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


def seen(page, root):
    """Return the texts of a page by line of its HTML, with tooltips and labels in brackets."""
    text = re.sub(r"<(style|script)\b.*?</\1>", "", page.read_text(), flags=re.S)
    text = re.sub(r'<[^>]* (?:title|aria-label|alt)="([^"]*)"[^>]*>', r" [\1] ", text)
    lines = [
        html.unescape(re.sub(r"<[^>]*>", " ", line)).replace(str(root), "ROOT") for line in text.splitlines()
    ]
    return [" ".join(line.split()) for line in lines if line.strip()]


@pytest.mark.parametrize("kind", [classification, gan, graph, search], ids=lambda kind: kind.__name__)
def test_what_a_page_shows_equals_its_record(kind, fake, report):
    page = fake.root / "report.html"
    if kind is search:
        write_search_page(page, search(fake.root).folder)
    else:
        kind(fake)
        failed = {path: "" for path in fake.root.glob("*/*") if path.is_dir() and path not in fake.folders}
        report(fake, failed=failed)
    check(page)
    found, record = seen(page, fake.root), RECORDS / f"{kind.__name__}.txt"
    if os.environ.get("NNLO_RECORD"):
        record.write_text("\n".join([*found, ""]))
    assert found == record.read_text().splitlines(), (
        f"see {Path(__file__).name} on how to renew {record.name}"
    )
