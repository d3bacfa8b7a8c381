"""Write docs/guides/gallery.md: `python benchmarks/gallery.py [--mnist FOLDER] [--cifar FOLDER] [--only NAME ...]`.

Each example that can run here is trained with one seed on simulated ranks, and its picture is a figure of its report. The
others keep the picture and the seconds of an earlier call, or have none. `--page` writes the page only.
"""

import argparse
import contextlib
import io
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from examples import EXAMPLES, Example, example_options, source_of  # first: it limits the threads of torch

# isort: split
import torch
import vl_convert
from figures import record

from nnlo_lib.api import load_experiment, search
from nnlo_lib.config import Run, merge_settings
from nnlo_lib.config.paths import store_of
from nnlo_lib.report.figure import Figure
from nnlo_lib.report.learning_curves import learning_curve_figures
from nnlo_lib.report.page import TEMPLATES
from nnlo_lib.report.quantities import time_base_of
from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.report.search.trial_charts import convergence_figures
from nnlo_lib.report.statistics.run_comparison import ranking_metric
from nnlo_lib.report.tables import load_jobs, summarize
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_store

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURES = DOCS / "guides/gallery.md", DOCS / "images/gallery"
MEASURED = PICTURES / "measured.json"  # seconds and changes of each example, by its name
MAX_EPOCHS = {"cifar10": 3, "nnlo-modes": 2, "wgan-mnist": 4}  # of the trainings for the page
OTHER_PICTURES = {
    "dinno-mnist": "dinno-mnist.svg",
    "stragglers": "stragglers.svg",
}  # by benchmarks/figures.py
NOT_SHOWN = {
    "imagenet",
    "dinno-scaling",
    "theanompi-rules",
    "mnist-asha",
    "pydtnn-mnist",
    *OTHER_PICTURES,
}  # take longer
MAX_PICTURE_BYTES = 40_000
INTRODUCTION = """# Gallery of examples

One entry per file of [config/experiments](../../config/experiments): what it shows, its text, the command, and a figure of its report. `python benchmarks/gallery.py --mnist FOLDER --cifar FOLDER`
trains what takes a few minutes and writes this page; seconds are of one busy 2-core machine, with one seed, on simulated ranks, which take turns in one process. What three seeds reach:
[What the examples learn](examples.md). `snakemake --configfile FILE` or `nnlo all FILE` runs all seeds and writes the report.
"""


def main() -> None:
    """Train the examples and write the page."""
    options = _options()
    torch.set_num_threads(1)
    measured = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    for name in options.only:
        source = source_of(name, options)
        if source is None:
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            Path("config").symlink_to(EXAMPLES.parent)  # examples name files below it
            begun = time.monotonic()
            figure, changes = _trained(Example(name, source, options.quick, True, None))
            seconds = time.monotonic() - begun
        suffix, content = _picture(figure)
        print(f"{name}: {seconds:.0f} s, {suffix} of {len(content)} bytes", flush=True)
        if not options.quick:
            for old in PICTURES.glob(f"{name}.*"):
                old.unlink()
            (PICTURES / f"{name}.{suffix}").write_bytes(content)
            record(PICTURES / f"{name}.{suffix}", EXAMPLES / f"{name}.yaml")
            measured[name] = {"seconds": round(seconds), "changes": changes}
            MEASURED.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
    if not options.quick:
        PAGE.write_text(page(measured))


def _options() -> argparse.Namespace:
    names = [path.stem for path in sorted(EXAMPLES.glob("*.yaml"))]
    parser = example_options(__doc__, names)
    parser.add_argument("--page", action="store_true", help="write the page only")
    parser.add_argument("--quick", action="store_true", help="one example, one step, nothing is written")
    options = parser.parse_args()
    shown = [name for name in names if name not in NOT_SHOWN]
    options.only = [] if options.page else options.only or (["allreduce"] if options.quick else shown)
    PICTURES.mkdir(exist_ok=True)
    return options


def _trained(example: Example) -> tuple[Figure, str]:
    """Train an example; return a figure of its report, and how the training differs from the file."""
    experiment = example.load({})
    if experiment.search:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            found = search(example.load({"search.parallel": 1}))
        changes = ", ".join(f"`{key}: {value}`" for key, value in example.shortened.changes.items())
        return convergence_figures(StudyData.load(found.folder))[0], changes
    folders, planned, trained = [], set(), set()
    for name, run in example.runs().items():
        planned.add(run.train.epochs)
        epochs = min(run.train.epochs, MAX_EPOCHS.get(example.name, run.train.epochs))
        trained.add(epochs)
        folders.append(_train(example.name, name, _with_epochs(run, epochs)))
    jobs = load_jobs(folders)
    ranking = ranking_metric(summarize(jobs))
    figures = learning_curve_figures(jobs, time_base_of(jobs), ranking.name if ranking else None)
    # The last figure over epochs that is not about the agreement of nodes shows the main metric.
    over_epochs = [each for each in figures if each.spec["usermeta"]["x"] == "epoch"]
    main_figure = [each for each in over_epochs if not each.title.startswith("Mean distance")][-1]
    return main_figure, "" if trained == planned else f"{max(trained)} of {max(planned)} epochs"


def _with_epochs(run: Run, epochs: int) -> Run:
    return Run.model_validate(
        merge_settings(run.model_dump(exclude_unset=True), {"train": {"epochs": epochs}})
    )


def _train(example: str, name: str, run: Run) -> Path:
    folder, manifest = Path(f"results/{example}/{name}/seed-1"), prepare_store(store_of(run))
    task = Task(example, name, run, 1, None, 1, manifest, folder)
    with contextlib.redirect_stderr(io.StringIO()):
        train_simulated(task, StopFlag())
        evaluate_model(run, manifest, task.paths.model, task.paths.evaluation)
    return folder.absolute()


def _picture(figure: Figure) -> tuple[str, bytes]:
    """Return suffix and content of a figure in the page's light colors: SVG, or PNG if that is too large."""
    spec = figure.spec
    if "layer" in spec:  # without the layers of a learning curve that answer the pointer
        spec = spec | {"layer": [each for each in spec["layer"] if '"near"' not in json.dumps(each)]}
    light = (TEMPLATES / "page.css").read_text().partition("}")[0]
    colors = dict(re.findall(r"(--[\w-]+): (#\w{6})", light))
    text = re.sub(r"var\((--[\w-]+)\)", lambda found: colors[found[1]], json.dumps(_with_rows(spec)))
    drawn = json.loads(text) | {"width": 460, "background": "white", "padding": 12}
    drawn["title"] = {"text": figure.title, "subtitle": figure.note, "anchor": "start"}
    svg = vl_convert.vegalite_to_svg(drawn).encode()
    return (
        ("svg", svg)
        if len(svg) <= MAX_PICTURE_BYTES
        else ("png", vl_convert.vegalite_to_png(drawn, scale=1.2))
    )


def _with_rows(spec: Any) -> Any:
    """Return (part of) a specification whose data are rows, as page.js makes them."""
    if isinstance(spec, list):
        return [_with_rows(each) for each in spec]
    if not isinstance(spec, dict):
        return spec
    shown = {name: _with_rows(value) for name, value in spec.items()}
    if isinstance(data := spec.get("data"), dict) and (columns := data.get("columns")):
        rows = zip(*columns.values(), strict=True)
        shown["data"] = {"values": [dict(zip(columns, row, strict=True)) for row in rows]}
    return shown


def page(measured: dict[str, Any]) -> str:
    """Return the text of the page."""
    return "\n".join([INTRODUCTION, *(_entry(path, measured) for path in sorted(EXAMPLES.glob("*.yaml")))])


def _entry(path: Path, measured: dict[str, Any]) -> str:
    name, experiment = path.stem, load_experiment(path)
    command = "search" if experiment.search else "run"
    source = (
        "" if experiment.data.dataset not in ("mnist", "imagenet", "cifar10") else " --set data.source=FOLDER"
    )
    every = "" if experiment.search else " --all"
    pictures = sorted(PICTURES.glob(f"{name}.*"))
    shown = f"gallery/{pictures[0].name}" if pictures else OTHER_PICTURES.get(name)
    known = measured.get(name)
    took = (
        f"{known['seconds']} s" + (f" ({known['changes']})" if known["changes"] else "")
        if known
        else "not run for this page"
    )
    lines = [f"## {name}", "", f"`nnlo {command} config/experiments/{path.name}{source}{every}`: {took}.", ""]
    lines += (
        [f"![{name}: a figure of its report](../images/{shown})", ""]
        if shown
        else ["No picture: the example takes longer than a few minutes, or its data were not here.", ""]
    )
    lines += [
        "<!-- not checked: the tests check the file -->",
        f'```yaml title="{path.name}"',
        path.read_text().rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
