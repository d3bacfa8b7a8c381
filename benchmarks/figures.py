"""Draw figures of the documentation from trainings, and print their tables.

nnlo run docs/images/bytes.yaml --all
python benchmarks/figures.py bytes results/bytes
nnlo simulate config/experiments/dinno-mnist.yaml --set data.source=FOLDER
nnlo simulate config/experiments/stragglers.yaml --set data.source=FOLDER
python benchmarks/figures.py dinno-mnist results/dinno-mnist-simulated
python benchmarks/figures.py stragglers results/stragglers-simulated
nnlo run config/experiments/lidar-dinno.yaml --all
python benchmarks/figures.py lidar-dinno results/lidar-dinno
python benchmarks/figures.py --quick    # with synthetic histories, in a temporary folder

docs/images/sources.json has the source of each picture, and checksums of both: tests/docs/test_pictures.py finds an old one.
"""

import argparse
import ast
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import yaml

plt.rcParams["svg.hashsalt"] = "nnlo"  # otherwise, equal figures differ in the names of their parts
REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
IMAGES = DOCS / "images"
SOURCES = IMAGES / "sources.json"
LEVEL = 0.95  # accuracy up to which the figure `bytes` counts bytes
GRAPHS = ("cycle", "complete", "random-sparse", "random-dense")
METHODS = {"dinno": "C0", "dsgt": "C1", "dsgt-tuned": "C2", "next": "C4", "dsgd": "C3"}
LEVELS = (0.90, 0.95, 0.97)
STEPS_PER_ROUND = {"dinno": 5, "individual": 5, "next": 2}  # of lidar-dinno; others have a round in each step


def histories(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the history of each finished run in `folder`, by name of the run."""
    files = sorted(folder.glob("*/seed-*/history.csv"))
    return {file.parents[1].name: pd.read_csv(file) for file in files}


def digest_of(source: Path) -> str:
    """Return a checksum of what decides a picture: settings of an experiment, the scripts of a page, or a program."""
    if source.suffix == ".yaml":
        content = json.dumps(yaml.safe_load(source.read_text()), sort_keys=True)
    elif source.suffix == ".md":
        content = "".join(re.findall(r'^```\w+ title="[^"]+"\n.*?^```$', source.read_text(), re.M | re.S))
    else:
        content = ast.unparse(ast.parse(source.read_text()))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def record(picture: Path, source: Path) -> None:
    """Write the source of a picture, and the checksums of both, into docs/images/sources.json."""
    sources = json.loads(SOURCES.read_text()) if SOURCES.exists() else {}
    sources = {name: known for name, known in sources.items() if (IMAGES / name).exists()}
    sources[str(picture.relative_to(IMAGES))] = {
        "source": str(source.relative_to(REPOSITORY)),
        "source_digest": digest_of(source),
        "picture_digest": hashlib.sha256(picture.read_bytes()).hexdigest()[:16],
    }
    SOURCES.write_text(json.dumps(sources, indent=1, sort_keys=True) + "\n")


def bytes_sent(folder: Path, target: Path) -> None:
    """Write the table of bytes and accuracy of all seeds, from which the figure is drawn."""
    tables = [
        pd.read_csv(file).assign(run=file.parents[1].name, seed=file.parent.name.removeprefix("seed-"))
        for file in sorted(folder.glob("*/seed-*/history.csv"))
    ]
    columns = ["run", "seed", "epoch", "bytes", "val_accuracy"]
    pd.concat(tables)[columns].to_csv(target / "bytes.csv", index=False, float_format="%.6g")
    draw_bytes(target / "bytes.csv", target)


def draw_bytes(file: Path, target: Path) -> None:
    """Draw the accuracy over the bytes sent: the mean of the seeds with their range; print the bytes to an accuracy."""
    figure, panel = plt.subplots(figsize=(7.5, 3.8))
    ends = []
    for name, run in pd.read_csv(file).groupby("run"):
        epochs = run.groupby("epoch")
        sent, accuracy = epochs["bytes"].mean() / 1e6, epochs["val_accuracy"]
        reached = sent[accuracy.mean() >= LEVEL]
        ends.append((reached.min(), name, sent, accuracy))
    for number, (end, name, sent, accuracy) in enumerate(sorted(ends, key=lambda each: each[0])):
        label = f"{name}: {end:,.0f} MB to {LEVEL * 100:.0f} %"
        panel.plot(sent, accuracy.mean(), f"C{number}", label=label)
        panel.fill_between(sent, accuracy.min(), accuracy.max(), color=f"C{number}", alpha=0.15, lw=0)
        print(label)
    panel.axhline(LEVEL, color="grey", lw=0.5)
    panel.set(
        xlabel="MB sent by all ranks (logarithmic)", ylabel="validation accuracy", ylim=(0, 1), xscale="log"
    )
    panel.xaxis.set_major_formatter("{x:g}")
    panel.legend(loc="lower right")
    save(figure, target / "bytes.svg")


def dinno_mnist(folder: Path, target: Path) -> None:
    """Draw the mean accuracy of the nodes over the rounds, with one panel per graph, and print a table."""
    runs = histories(folder)
    figure, panels = plt.subplots(1, len(GRAPHS), figsize=(13, 3.4), sharey=True)
    for panel, graph in zip(panels, GRAPHS, strict=True):
        for method, color in METHODS.items():
            if (run := runs.get(f"{method}-{graph}")) is not None:
                rounds = _rounds(run)
                panel.plot(rounds, run["val_accuracy"], color, label=method)
                panel.fill_between(
                    rounds, run["val_accuracy_min"], run["val_accuracy_max"], color=color, alpha=0.2, lw=0
                )
        panel.set(title=graph, xlabel="round", ylim=(0, 1))
    panels[0].set_ylabel("top-1 accuracy: mean, worst and best node")
    panels[0].legend()
    save(figure, target / "dinno-mnist.svg")
    print(
        "| run | 100 | 400 | 1,000 | 2,000 (worst, best node) | rounds to 90 / 95 / 97 % |\n|" + " --- |" * 6
    )
    for name, run in runs.items():
        print(f"| {name} | {' | '.join(_cells(run))} |")


def _rounds(run: pd.DataFrame) -> "pd.Series[float]":
    # The study has 2,000 rounds, divided into equal epochs.
    return run["epoch"] * 2000 / run["epoch"].max()


def _cells(run: pd.DataFrame) -> Iterator[str]:
    table = run.set_index(_rounds(run).astype(int))
    yield from (f"{table['val_accuracy'][at]:.3f}" for at in (100, 400, 1000))
    last = table.iloc[-1]
    yield f"**{last['val_accuracy']:.3f}** ({last['val_accuracy_min']:.3f}, {last['val_accuracy_max']:.3f})"
    reached = (table.index[table["val_accuracy"] >= level] for level in LEVELS)
    yield " / ".join(f"{where[0]:,}" if len(where) else "-" for where in reached)


def stragglers(folder: Path, target: Path) -> None:
    """Draw the validation accuracy over virtual time."""
    figure, panel = plt.subplots(figsize=(7, 4))
    for number, (name, run) in enumerate(histories(folder).items()):
        panel.plot(run["seconds"], run["val_accuracy"], f"C{number}", marker=".", label=name)
    panel.axhline(0.95, color="grey", lw=0.5)
    panel.set(xlabel="virtual seconds", ylabel="validation accuracy", ylim=(0.6, 1), xscale="log")
    panel.legend()
    save(figure, target / "stragglers.svg")


def lidar_dinno(folder: Path, target: Path) -> None:
    """Draw the validation loss over the rounds, the plan and what the first robot knows of it; print a table.

    Trainings that have not ended are drawn as far as they are.
    """
    runs = {path.parents[2].name: path for path in sorted(folder.glob("*/seed-0/state/history.jsonl"))}
    finished = [name for name in runs if (folder / name / "seed-0/maps.npz").exists()]
    summaries = [json.loads((folder / name / "seed-0/summary.json").read_text()) for name in finished]
    base = summaries[0]["data"]["constant_loss"]
    figure = plt.figure(figsize=(11, 6.5))
    rows = figure.add_gridspec(2, 1, height_ratios=(1.3, 1))
    panel, maps = figure.add_subplot(rows[0]), rows[1].subgridspec(1, 1 + len(finished))
    panel.axhline(base, color="grey", ls="--", label="best constant predictor")
    print(
        "| run | rounds | validation cross-entropy, mean of the robots | worst robot | mean / best constant |"
    )
    print("| --- |" + " ---: |" * 4)
    for number, (name, path) in enumerate(runs.items()):
        run = pd.read_json(path, lines=True)
        rounds = run["step"] / STEPS_PER_ROUND.get(name, 1)
        panel.plot(rounds, run["val_loss"], f"C{number}", label=name)
        last = run.iloc[-1]
        print(
            f"| `{name}` | {rounds.iloc[-1]:,.0f} | {last['val_loss']:.4f} | {last['val_loss_max']:.4f} | {last['val_loss'] / base:.2f} |"
        )
    panel.set(xlabel="round", ylabel="validation cross-entropy", yscale="log", ylim=(0.03, 1))
    panel.legend(ncols=2)
    for place, name in enumerate(["", *finished]):
        with np.load(folder / (name or finished[0]) / "seed-0/maps.npz") as arrays:
            step = max(int(each.removeprefix("map_")) for each in arrays.files if each.startswith("map_"))
            pixels = 255 * arrays[f"plan_{step}"] if not name else arrays[f"map_{step}"][0]
        picture = figure.add_subplot(maps[place])
        picture.imshow(pixels.astype(float), cmap="gray_r", vmin=0, vmax=255)
        picture.set(title=name or "plan", xticks=(), yticks=())
    save(figure, target / "lidar-dinno.svg")


def save(figure: plt.Figure, path: Path) -> None:
    """Write a figure as SVG."""
    figure.tight_layout()
    # Without the date, equal results give equal files.
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")


def main() -> None:
    """Draw one figure; with --quick, draw all figures from synthetic histories."""
    drawings = {
        "bytes": bytes_sent,
        "dinno-mnist": dinno_mnist,
        "stragglers": stragglers,
        "lidar-dinno": lidar_dinno,
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=drawings, nargs="?")
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument(
        "--quick", action="store_true", help="draw all figures from synthetic histories, as a test"
    )
    parser.add_argument(
        "--record",
        nargs=2,
        type=Path,
        metavar=("PICTURE", "SOURCE"),
        help="record a picture made by another program",
    )
    options = parser.parse_args()
    if options.record:
        record(*(path.resolve() for path in options.record))
    elif options.quick:
        with tempfile.TemporaryDirectory() as folder:
            _write_synthetic_histories(Path(folder))
            for draw in drawings.values():
                draw(Path(folder), Path(folder))
    elif options.which is None or options.folder is None:
        parser.error("missing argument; pass the name of a figure and the folder of its runs")
    else:
        drawings[options.which](options.folder, IMAGES)
        examples = IMAGES if options.which == "bytes" else REPOSITORY / "config/experiments"
        record(IMAGES / f"{options.which}.svg", examples / f"{options.which}.yaml")


def _write_synthetic_histories(folder: Path) -> None:
    """Write a history for each curve, in which the accuracy rises from 0.5 to 0.98."""
    accuracy = pd.Series([0.5 + 0.024 * number for number in range(21)])
    columns = {
        "val_accuracy": accuracy,
        "val_accuracy_min": accuracy - 0.01,
        "val_accuracy_max": accuracy + 0.01,
    }
    history = pd.DataFrame({"epoch": range(21), "seconds": range(1, 22), "bytes": range(21), **columns})
    for name in [f"{method}-{graph}" for method in METHODS for graph in GRAPHS]:
        (folder / name / "seed-0").mkdir(parents=True)
        history.to_csv(folder / name / "seed-0" / "history.csv", index=False)
    job = folder / "dinno/seed-0"
    (job / "state").mkdir(parents=True)
    (job / "state/history.jsonl").write_text('{"step": 100, "val_loss": 0.1, "val_loss_max": 0.2}\n')
    (job / "summary.json").write_text('{"data": {"constant_loss": 0.17}}')
    np.savez(job / "maps.npz", plan_100=np.eye(3, 4), map_100=np.full((7, 3, 4), 255, np.uint8))


if __name__ == "__main__":
    main()
