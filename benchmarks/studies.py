"""Which way of distributing: `python benchmarks/studies.py STUDY --source FOLDER`, or `--quick`.

A study is a file of benchmarks/studies: ways to distribute a training, machines, and an experiment. The learning rate of each way is
searched by `nnlo search` with the same number of trials, on the first machine. Then `nnlo simulate` trains each way on each
machine, with each seed, on simulated ranks: seconds are virtual. Both continue if they are interrupted; experiments and results lie in results/.
FOLDER has the four files of MNIST. The table is written to a file of docs/images/studies, from which --draw draws the figure again.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import yaml
from figures import record, save

from nnlo_lib.config.base import merge_settings

REPOSITORY = Path(__file__).resolve().parents[1]
STUDIES = REPOSITORY / "benchmarks/studies"
IMAGES = REPOSITORY / "docs/images/studies"
COLUMNS = ["epoch", "samples", "seconds", "bytes", "val_accuracy"]
QUICK = {
    "data": {"dataset": "digits", "validation": 0.2},
    "train": {"epochs": 2, "steps_per_epoch": 10},
    "parallel": {"ranks": 4},
}
Settings = dict[str, Any]


class Study:
    """One file of benchmarks/studies; with `quick`, a small one on the embedded digits."""

    def __init__(self, name: str, source: Path | None, quick: bool) -> None:
        self.name = name
        content = yaml.safe_load((STUDIES / f"{name}.yaml").read_text())
        self.tune, self.ways, self.machines = content["tune"], content["ways"], content["machines"]
        self.target: float | None = content.get("target")
        self.metric: str = content.get("metric", "val_accuracy")  # that reaches the target
        self.servers: list[str] = content.get("servers", [])  # ways with one rank more than workers
        self.published: dict[str, dict[int, float]] = content.get("published", {})
        self.experiment: Settings = content["experiment"]
        if source:
            self.experiment["data"]["source"] = str(source.resolve())
        if quick:
            self.experiment = merge_settings(self.experiment, QUICK) | {"seeds": [1]}
            self.tune = {"trials": 2, "factor": 2, "experiment": {}}
            self.ways, self.machines = dict([*self.ways.items()][:2]), dict([*self.machines.items()][-1:])

    @property
    def ideal_speed(self) -> float:
        """Samples per second of all ranks if none waits."""
        parallel = self.experiment["parallel"]
        return float(parallel["ranks"] / parallel["simulation"]["sample_seconds"])

    def run(self) -> pd.DataFrame:
        """Tune, train, and return the rows of all histories with way, machine, seed, learning rate and test accuracy."""
        rates = {way: self._tuned(way) for way in self.ways}
        tuned = {
            way: merge_settings(self.ways[way], {"train": {"optimizer": {"lr": rate}}})
            for way, rate in rates.items()
        }
        runs = {
            _slug(way, machine): self._with_server(way, merge_settings(tuned[way], self.machines[machine]))
            for way in self.ways
            for machine in self.machines
        }
        file = self._write(self.experiment | {"name": self.name, "runs": runs})
        for seed in self.experiment["seeds"]:
            _nnlo("simulate", file, "--seed", str(seed))
        return pd.concat(self._histories(rates), ignore_index=True)

    def _tuned(self, way: str) -> float:
        """Return the best learning rate of a search on the first machine, times the study's margin."""
        changes = next(iter(self.machines.values())), self.ways[way], self.tune["experiment"]
        settings = self._with_server(way, reduce(merge_settings, changes, self.experiment))
        rate, factor = settings["train"]["optimizer"]["lr"], self.tune["factor"]
        search = {
            "space": {"train.optimizer.lr": {"log_uniform": [rate / factor, rate * factor]}},
            "trials": self.tune["trials"],
            "method": {"name": "auto", "initial": 4},
            "order": "fixed",
            "parallel": 2,
            "objective": {"metric": self.metric},
        }
        name = f"{self.name}-tune-{_slug(way)}"
        _nnlo("search", self._write(settings | {"name": name, "search": search}))
        best = yaml.safe_load(Path(f"results/{name}/search/best.yaml").read_text())
        return float(best["train"]["optimizer"]["lr"]) * float(self.tune.get("margin", 1))

    def _histories(self, rates: dict[str, float]) -> Iterator[pd.DataFrame]:
        for way in self.ways:
            for machine in self.machines:
                for folder in sorted(
                    Path(f"results/{self.name}-simulated/{_slug(way, machine)}").glob("seed-*")
                ):
                    test = json.loads((folder / "evaluation.json").read_text())["accuracy"]
                    yield pd.read_csv(folder / "history.csv")[
                        [*dict.fromkeys([*COLUMNS, self.metric])]
                    ].assign(
                        way=way,
                        machine=machine,
                        seed=folder.name.removeprefix("seed-"),
                        lr=rates[way],
                        test_accuracy=test,
                    )

    def _with_server(self, way: str, settings: Settings) -> Settings:
        ranks = merge_settings(self.experiment, settings)["parallel"]["ranks"] + (way in self.servers)
        changed: Settings = merge_settings(settings, {"parallel": {"ranks": ranks}})
        return changed

    def _write(self, experiment: Settings) -> Path:
        file = Path(f"{experiment['name']}.yaml")
        file.write_text(yaml.safe_dump(experiment, sort_keys=False))
        return file


def _slug(*words: str) -> str:
    text = "-".join(words).lower()
    return "-".join("".join(letter if letter.isalnum() else " " for letter in text).split())


def _nnlo(command: str, file: Path, *options: str) -> None:
    subprocess.run([Path(sys.executable).with_name("nnlo"), command, str(file), *options], check=True)


def summary(rows: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return one row per way, machine and seed: end of the training, and seconds and MB until validation reached the target."""
    found = []
    for key, run in rows.groupby(["way", "machine", "seed"], sort=False):
        last = run.iloc[-1]
        values, target = run[study.metric], study.target
        reached = run[values <= (target or 0) if study.metric == "val_loss" else values >= (target or 2)]
        first = reached.iloc[0] if len(reached) else None
        found.append({
            "way": key[0], "machine": key[1], "lr": last["lr"], "test": last["test_accuracy"], "validation": last["val_accuracy"],
            "speed": last["samples"] / last["seconds"], "MB": last["bytes"] / 1e6, "seconds": last["seconds"],
            "to": None if first is None else first["seconds"], "to_MB": None if first is None else first["bytes"] / 1e6,
        })  # fmt: skip
    return pd.DataFrame(found)


def print_table(rows: pd.DataFrame, study: Study) -> None:
    """Print the means of the seeds, with their range."""
    print(
        "| way | machine | lr | test accuracy | samples/s | seconds | MB | seconds to target | MB to target |"
    )
    print("| --- | --- |" + " ---: |" * 7)
    for (way, machine), seeds in summary(rows, study).groupby(["way", "machine"], sort=False):
        to = "-" if seeds["to"].isna().any() else _cell(seeds["to"])
        sent = "-" if seeds["to"].isna().any() else f"{seeds['to_MB'].mean():,.0f}"
        print(
            f"| {way} | {machine} | {seeds['lr'].iloc[0]:.2g} | {_cell(100 * seeds['test'])} | {seeds['speed'].mean():,.0f} "
            f"| {_cell(seeds['seconds'])} | {seeds['MB'].mean():,.0f} | {to} | {sent} |"
        )


def print_gap(rows: pd.DataFrame, study: Study) -> None:
    """Print how many percent of the gap between the second way and the first each way closes."""
    means = summary(rows, study).groupby("way", sort=False)[["test", "validation"]].mean()
    best, plain = means.iloc[0], means.iloc[1]
    print((100 * (means - plain) / (best - plain)).round().to_string())


def _cell(values: "pd.Series[float]") -> str:
    digits = 1 if values.max() >= 10 else 2
    return f"{values.mean():.{digits}f} ({values.min():.{digits}f} to {values.max():.{digits}f})"


def draw_speed_up(study: Study, rows: pd.DataFrame, target: Path) -> None:
    """Draw the samples per second of each number of workers, relative to one, and the accuracy; published numbers are dashed."""
    figure, (speeds, accuracies) = plt.subplots(1, 2, figsize=(8.5, 3.6))
    ends = summary(rows, study)
    one = 1 / study.experiment["parallel"]["simulation"]["sample_seconds"]
    ends = ends.assign(workers=ends["machine"].str.split().str[0].astype(int), speed_up=ends["speed"] / one)
    for number, way in enumerate(study.ways):
        color, workers = f"C{number}", ends[ends["way"] == way].groupby("workers")
        speeds.plot(workers["speed_up"].mean(), color, marker="o", ms=3, label=way)
        accuracies.plot(100 * workers["test"].mean(), color, marker="o", ms=3)
        accuracies.vlines([*workers.groups], 100 * workers["test"].min(), 100 * workers["test"].max(), color)
    for number, (label, points) in enumerate(study.published.items()):
        speeds.plot([*points], [*points.values()], ("k--", "k:")[number], marker="x", label=label)
    counts = sorted({*ends["workers"]})
    for panel, text in ((speeds, "samples/s, times those of one worker"), (accuracies, "test accuracy, %")):
        panel.set_xscale("log", base=2)
        panel.set(xlabel="workers", ylabel=text, xticks=counts, xticklabels=counts)
    speeds.set_yscale("log", base=2)
    speeds.set(yticks=counts, yticklabels=counts)
    speeds.legend(fontsize="x-small")
    accuracies.set(ylim=(85, 98))  # a way that does not learn leaves the panel
    save(figure, target)


def draw(study: Study, rows: pd.DataFrame, target: Path) -> None:
    """Draw the figure of a study: means of the seeds with their range."""
    if study.published:
        draw_speed_up(study, rows, target)
        return
    figure, panel = plt.subplots(figsize=(8.5, 4))
    ends = summary(rows, study)
    ends["test"] *= 100
    for number, way in enumerate(study.ways):
        color, end = f"C{number}", ends[ends["way"] == way]
        if study.target:
            reached = end.dropna(subset="to").groupby("machine", sort=False)["to"]
            places = [[*study.machines].index(machine) for machine, _ in reached]
            panel.plot(places, reached.mean(), color, marker="o", label=way)
            panel.vlines(places, reached.min(), reached.max(), color)
        elif study.name == "different":
            percent = rows.assign(val_accuracy=100 * rows["val_accuracy"])
            epochs = percent[percent["way"] == way].groupby("epoch")
            sent, accuracy = epochs["bytes"].mean() / 1e6, epochs["val_accuracy"]
            style = "-" if number < 10 else "--"  # colors repeat
            panel.plot(sent, accuracy.mean(), color, ls=style, label=way)
            panel.fill_between(sent, accuracy.min(), accuracy.max(), color=color, alpha=0.15, lw=0)
        else:
            machines = end.groupby("machine", sort=False)
            goodput, accuracy = 100 * machines["speed"].mean() / study.ideal_speed, machines["test"]
            panel.plot(goodput, accuracy.mean(), color, label=way)
            panel.plot(goodput.iloc[-1:], accuracy.mean().iloc[-1:], color, marker="o")
            panel.vlines(goodput, accuracy.min(), accuracy.max(), color, lw=0.8)
    goal = (
        f"a validation loss of {study.target}" if study.metric == "val_loss" else f"{study.target or 0:.0%}"
    )
    texts = {
        "different": ("MB sent by all nodes (logarithmic)", "validation accuracy, mean of the nodes, %"),
        "unreliable": (
            "goodput, % of what all ranks compute without waiting; dot: unreliable machine",
            "test accuracy, %",
        ),
    }.get(study.name, ("links", f"virtual seconds to {goal.replace('%', ' %')} (logarithmic)"))
    panel.set(xlabel=texts[0], ylabel=texts[1])
    if study.target:
        panel.set(yscale="log", xticks=range(len(study.machines)), xticklabels=study.machines)
    elif study.name == "different":
        panel.set(xscale="log", ylim=(40, 100))
    panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, target)


def main() -> None:
    """Run a study, or draw it from its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", nargs="?", choices=sorted(file.stem for file in STUDIES.glob("*.yaml")))
    parser.add_argument("--source", type=Path, help="folder of the four files of MNIST")
    parser.add_argument(
        "--draw", action="store_true", help="only print and draw the table in docs/images/studies"
    )
    parser.add_argument(
        "--quick", action="store_true", help="each study on the embedded digits, in a temporary folder"
    )
    options = parser.parse_args()
    if options.quick:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for file in sorted(STUDIES.glob("*.yaml")):
                study = Study(file.stem, None, quick=True)
                print_table(study.run(), study)
        return
    if not options.study:
        parser.error("missing argument; pass the name of a study")
    study = Study(options.study, options.source, quick=False)
    table = IMAGES / f"{study.name}.csv"
    if not options.draw:
        table.parent.mkdir(exist_ok=True)
        study.run().to_csv(table, index=False, float_format="%.6g")
    print_table(pd.read_csv(table), study)
    if study.name == "different":
        print_gap(pd.read_csv(table), study)
    draw(study, pd.read_csv(table), IMAGES / f"{study.name}.svg")
    record(IMAGES / f"{study.name}.svg", STUDIES / f"{study.name}.yaml")


if __name__ == "__main__":
    main()
