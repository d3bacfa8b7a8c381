"""Synthetic job folders of trainings, generated from a seed, for tests of their readers."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

EXPERIMENT = """name: fake
model: {name: simplecnn}
train: {epochs: 20, batch_size: 16}
seeds: [1, 2, 3]
runs:
  allreduce: {algorithm: {name: allreduce}, parallel: {ranks: 2}}
  downpour: {algorithm: {name: downpour}, parallel: {ranks: 3}}
"""
START = "2026-01-02T03:{minute:02d}:00+00:00"
LAYERS = [
    {"name": "0", "type": "Conv2d", "shape": [4, 8, 8], "parameters": 40},
    {"name": "1", "type": "Flatten", "shape": [256], "parameters": 0},
    {"name": "2", "type": "Linear", "shape": [10], "parameters": 2570},
]


def change_json(path: Path, **values):
    """Change keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


class Fake:
    """Builder of a synthetic experiment in a folder."""

    def __init__(self, root: Path):
        self.root, self.folders = root, []
        self.file = root / "experiment.yaml"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(EXPERIMENT)

    def job(
        self, run="allreduce", seed=1, fold=None, *, epochs=20, roles=("worker", "worker"), level=0.96, speed=5000.0,
        classes=10, validation=True, accuracy=True, restarts=0, config=None,
    ):  # fmt: skip
        """Write one job folder; return its path. `level`: final accuracy; `speed`: samples per second."""
        fold_name = "" if fold is None else f"/fold-{fold}"
        folder = self.root / f"{run}/seed-{seed}{fold_name}"
        folder.mkdir(parents=True)
        rng = np.random.default_rng([seed, fold or 0, *map(ord, run)])
        level, speed = level + rng.normal(0, 0.004), speed * (1 + rng.normal(0, 0.01))
        seconds = epochs * 1300 / speed
        history = _history(rng, epochs, seconds, level, validation, accuracy)
        _write_csv(folder / "history.csv", history)
        last = {name: values[-1] for name, values in history.items() if name.startswith(("train_", "val_"))}
        summary = {
            "experiment": "fake",
            "run": run,
            "seed": seed,
            "fold": fold,
            "folds": 1 if fold is None else 5,
            "legs": [{"step": 0, "ranks": len(roles), "code": "0.1.0 (0123456789ab)"}],
            "input_files": {},
            "data": {"manifest": "data/fake/manifest.json", "fingerprint": "0123456789abcdef"},
            "training_samples": 1300,
            "validation_samples": 130 if validation else 0,
            "training_seconds": seconds,
            "histograms": {},
            "config": config
            or {"algorithm": {"name": run}, "parallel": {"ranks": len(roles)}, "metrics": []},
            "config_hash": f"{sum(map(ord, run)):016x}",
            "code_version": "0.1.0 (0123456789ab)",
            "packages": {"python": "3.11.7", "torch": "2.13.0+cpu"},
            "hosts": [f"node{rank}" for rank in range(len(roles))],
            "ranks": len(roles),
            "roles": list(roles),
            "model": {"name": "simplecnn", "parameters": 2610, "layers": LAYERS},
            "epochs": epochs,
            "steps": 41 * epochs,
            "samples_seen": 1300 * epochs,
            "samples_per_second": speed,
            "seconds": _seconds(seconds, "worker"),
            "seconds_by_rank": [_seconds(seconds, role) for role in roles],
            "bytes_sent": {"gradient": 8_000_000, "parameters": 6_000_000, "control": 5000, "metrics": 800},
            "used": {
                "memory_bytes": 700_000_000,
                "cpu_seconds": 30.0,
                "seconds": 20.0,
                "gpu_memory_bytes": 0,
            },
            "restarts": restarts,
            "final": last,
            "started": f"2026-01-02T03:04:{seed:02d}+00:00",
            "finished": f"2026-01-02T03:05:{seed:02d}+00:00",
        }
        (folder / "summary.json").write_text(json.dumps(summary, indent=1))
        (folder / "evaluation.json").write_text(json.dumps(_evaluation(rng, level, classes, accuracy)))
        self.folders.append(folder)
        return folder

    def gossip(self, run="dsgd", seed=1, *, transport="simulated", compression="none", worst=0.4, **given):
        """Write one job of the algorithm `run` on a cycle of four nodes, each with a model of its own.

        `worst` is the validation accuracy of the worst node; `given` are arguments of `job`.
        """
        config = {
            "algorithm": {"name": run},
            "topology": {"name": "cycle"},
            "compression": {"name": compression},
            "parallel": {"ranks": 4, "transport": transport},
        }
        folder = self.job(run, seed, roles=("worker",) * 4, config=config, **given)
        table = pd.read_csv(folder / "history.csv")
        table["val_accuracy_min"], table["val_accuracy_max"] = worst, table["val_accuracy"] + 0.01
        table["val_loss_min"], table["val_loss_max"] = table["val_loss"] / 2, table["val_loss"] * 2
        table["consensus_error"] = 1 / table["epoch"]
        table["consensus_error_normalised"] = 0.1 / table["epoch"]
        table["passes"], table["bytes"], table["invariant"], table["rho"] = table["epoch"], 1e6, 1e-8, 0.3
        table.to_csv(folder / "history.csv", index=False)
        final = {name: value for name, value in table.iloc[-1].items() if name.startswith(("train_", "val_"))}
        self.change(
            folder, final=final, spectral_gap=2 / 3, effective_neighbors=3.4375, messages_sent={"parameters": 4000, "control": 10},
        )  # fmt: skip
        return folder

    def change(self, folder, **values):
        """Change keys of a job's summary.json."""
        change_json(folder / "summary.json", **values)

    def add_to_history(self, folder, **columns):
        """Add columns to a job's history.csv."""
        pd.read_csv(folder / "history.csv").assign(**columns).to_csv(folder / "history.csv", index=False)

    def scored(self, run, *accuracies, samples=100, **summary):
        """Write a job per accuracy on some test samples; the other values of the jobs are equal."""
        for seed, accuracy in enumerate(accuracies, 1):
            folder = self.job(run, seed)
            change_json(folder / "evaluation.json", accuracy=accuracy, samples=samples)
            self.change(folder, **{"samples_per_second": 1000.0, "training_seconds": 60.0, **summary})

    def predictions(self, folder, outputs, targets, kind="probability"):
        """Write predictions.npz of a job: outputs (samples, k), and classes (samples,) or numbers (samples, k) as targets."""
        arrays = {"samples": np.arange(len(targets)), "outputs": np.float32(outputs), "targets": targets}
        arrays |= {} if kind == "value" else {"predicted": np.argmax(outputs, 1)}
        np.savez(folder / "predictions.npz", **arrays)
        change_json(folder / "evaluation.json", predictions=kind)

    def attempts(self, folder, *ended, error=None):
        """Write records of attempts two minutes apart: (reason, minutes, first step, reached step, saved step)."""
        minute, lines = 0, []
        for number, (reason, minutes, begun, reached, saved) in enumerate(ended, 1):
            lines.append({
                "attempt": number, "started": START.format(minute=minute), "ended": START.format(minute=minute + minutes),
                "seconds": 60.0 * minutes, "host": f"node{number}", "job": str(1000 + number), "reason": reason,
                "error": error, "from": begun, "reached": reached, "saved": saved, "ranks": 2,
            })  # fmt: skip
            minute += minutes + 2
        (folder / "state").mkdir(parents=True)
        (folder / "state/attempts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def quickstart(self):
        """Write the jobs of the default experiment: two runs with three seeds."""
        for seed in (1, 2, 3):
            self.job("allreduce", seed, level=0.968, speed=5200 + 60 * seed)
            self.job(
                "downpour", seed, level=0.970, speed=7400 + 90 * seed, roles=("server", "worker", "worker")
            )
        rng = np.random.default_rng(0)
        for folder in self.folders:
            self.predictions(folder, rng.dirichlet(np.ones(10), 360), np.arange(360) % 10)
        return self


def _history(rng, epochs, seconds, level, validation, accuracy):
    epoch = np.arange(1, epochs + 1)
    rising = level - (level - 0.1) * np.exp(-epoch / 2.5) + rng.normal(0, 0.004, epochs)
    falling = 2.3 * np.exp(-epoch / 3) + 2.5 * (1 - level) + rng.normal(0, 0.004, epochs)
    columns = {
        "epoch": epoch,
        "step": 41 * epoch,
        "samples": 1300 * epoch,
        "seconds": seconds * epoch / epochs,
        "samples_per_second": np.full(epochs, 1300 * epochs / seconds),
        "learning_rate": np.full(epochs, 0.02),
        "train_loss": falling * 0.9,
        "train_accuracy": np.clip(rising + 0.01, 0, 1),
        "val_loss": falling if validation else [""] * epochs,
        "val_accuracy": np.clip(rising, 0, 1) if validation else [""] * epochs,
    }
    dropped = ("train_accuracy", "val_accuracy") if not accuracy else ()
    return {
        name: [value.item() if hasattr(value, "item") else value for value in values]
        for name, values in columns.items()
        if name not in dropped
    }


def _write_csv(path, columns):
    rows = [columns, *zip(*columns.values(), strict=True)]
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))


def _seconds(total, role):
    server, worker = (0.1, 0.3, 0.52, 0.0, 0.06, 0.02), (0.72, 0.1, 0.06, 0.04, 0.06, 0.02)
    phases = ("compute", "communication", "wait", "data", "evaluate", "checkpoint")
    shares = dict(zip(phases, server if role == "server" else worker, strict=True))
    return {"total": total, **{phase: share * total for phase, share in shares.items()}}


def _evaluation(rng, level, classes, accuracy):
    if not accuracy:
        return {"split": "test", "samples": 36 * classes, "loss": 1 - level}
    confusion = np.diag(np.full(classes, 36))
    for true, guess in rng.integers(classes, size=(round((1 - level) * 36 * classes), 2)):
        confusion[true, true] -= 1
        confusion[true, guess] += 1
    return {
        "split": "test",
        "samples": 36 * classes,
        "loss": 4 * (1 - level),
        "accuracy": float(np.trace(confusion) / (36 * classes)),
        "confusion": confusion.tolist(),
        "classes": [str(number) for number in range(classes)],
    }
