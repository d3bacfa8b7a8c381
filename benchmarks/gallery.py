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
from nnlo_lib.report.search.trial_charts import convergence_figure
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
MAX_WORDS = 45  # of a file that is shown
MAX_SENTENCE_WORDS = 35
SHARED = """model: {name: simplecnn, args: {dropout: 0.0}}
train:
  epochs: 20
  batch_size: 16
  optimizer: {name: sgd, lr: 0.02, momentum: 0.9}
"""  # of examples on the embedded digits
INTRODUCTION = """# Gallery of examples

Each picture is a figure of the report of an example in [config/experiments](../../config/experiments), and leads to its settings and its command. Seconds are of one busy 2-core
machine, with one seed, on simulated ranks, which take turns in one process. `nnlo all FILE` trains all seeds and writes the report. What three seeds reach:
[What the examples learn](examples.md).
"""
AFTER_OVERVIEW = f"""`python benchmarks/gallery.py --mnist FOLDER --cifar FOLDER` trains what takes a few minutes, and writes this page. Where only a few lines are shown below, the example has also `name` and

<!-- not checked: a part of several files -->
```yaml
{SHARED}```
"""
GROUPS = {  # the answer in a few words, and the examples
    "How many bytes?": (
        "`average` communicates in each tenth step, `diloco` in each twentieth; `allreduce` and `choco_sgd` compress. [Compression](../reference/algorithms.md#compression)",
        "allreduce average diloco noloco choco_sgd",
    ),
    "Which algorithm under stragglers?": (
        "One that does not wait: with a server (`downpour`, `easgd`, `eamsgd`, `gem`), or between nodes (`gosgd`, `adpsgd`). [A straggler](../reference/algorithms.md#a-straggler) compares them",
        "stragglers downpour easgd eamsgd gem gosgd adpsgd",
    ),
    "Nodes without a server?": (
        "Each node averages with its neighbors on a graph: with all of them, or with another one in each step",
        "dsgd sgp",
    ),
    "Data that differ by node?": (
        "Here, each node has other digits. `individual` does not communicate; the others correct the differences. [The figure of the DiNNO paper](../reference/algorithms.md#the-figure-of-the-dinno-paper)",
        "individual scaffold d2 dsgt dinno next prox_pda dinno-mnist dinno-scaling",
    ),
    "Robots that move?": (
        "Links follow from where the robots are. [Lidar](lidar.md)",
        "lidar-quick lidar-lossy lidar-dinno",
    ),
    "My own data, or another problem?": (
        "Numbers, pixels, texts, generated images; a reader of your own. [Data](data.md), [problems](problems.md)",
        "regression unet-shapes gpt-text wgan-mnist",
    ),
    "Known data sets of images?": (
        "They are downloaded, or read from a folder. [Data](data.md)",
        "mnist cifar10 imagenet",
    ),
    "Which settings are best?": ("A search. [Searches](search.md)", "algorithm-search mnist-asha"),
    "Experiments of the older systems?": (
        "`nnlo import` translates their commands. [Import](import.md)",
        "nnlo-modes nnlo-search-7 nnlo-search-13 pydtnn-mnist theanompi-rules",
    ),
}


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
        return convergence_figure(StudyData.load(found.folder)), changes
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
    overview = [
        f"**[{question}](#{_anchor(question)})**\n\n{_thumbnails(names.split())}"
        for question, (_, names) in GROUPS.items()
    ]
    groups = [
        f"## {question}\n\n{answer}.\n\n"
        + "\n".join(_entry(EXAMPLES / f"{name}.yaml", measured) for name in names.split())
        for question, (answer, names) in GROUPS.items()
    ]
    return "\n".join([INTRODUCTION, *overview, AFTER_OVERVIEW, *groups])


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _picture_of(name: str) -> str:
    """Return the file of an example's picture below docs/images, or an empty string."""
    own = sorted(PICTURES.glob(f"{name}.*"))
    return f"gallery/{own[0].name}" if own else OTHER_PICTURES.get(name, "")


def _thumbnails(names: list[str]) -> str:
    """Return links to the examples, with small pictures, as HTML that a forge and the site show."""
    pictures = {name: _picture_of(name) for name in names}
    links = [
        f'<a href="#{name}"><img src="../images/{shown}" alt="" width="200"><br>{name}</a>'
        if shown
        else f'<a href="#{name}">{name}</a>'
        for name, shown in pictures.items()
    ]
    return "\n".join(['<p class="gallery">', *links, "</p>\n"])


def _entry(path: Path, measured: dict[str, Any]) -> str:
    name, experiment, text = path.stem, load_experiment(path), path.read_text()
    command = "search" if experiment.search else "run"
    source = " --set data.source=FOLDER" * (experiment.data.dataset in ("mnist", "imagenet", "cifar10"))
    known = measured.get(name, {"seconds": "", "changes": ""})
    took = f": {known['seconds']} s" * bool(known["seconds"]) + f" ({known['changes']})" * bool(
        known["changes"]
    )
    lines = [f"### {name}", "", _summary(text), ""]
    lines += [
        f"`nnlo {command} config/experiments/{path.name}{source}{'' if experiment.search else ' --all'}`{took}.",
        "",
    ]
    if shown := _picture_of(name):
        lines += [f"![{name}](../images/{shown})", ""]
    part = re.sub(r"\A(#.*\n)+\n*|^name: .*\n", "", text, flags=re.MULTILINE).replace(SHARED, "")
    if len(part.split()) <= MAX_WORDS:
        lines += ["<!-- not checked: no name -->", f"```yaml\n{part.rstrip()}\n```", ""]
    else:
        lines += [f"Settings: [{path.name}](../../config/experiments/{path.name}).", ""]
    return "\n".join(lines)


def _summary(text: str) -> str:
    """Return the first sentence of an example's comment."""
    comment = [line[2:] for line in text.splitlines() if line.startswith("# ") and "$schema" not in line]
    sentence = re.split(r"(?<=\.) (?=[ A-Z])|   |: `|\.$", " ".join(comment))[0].rstrip(".")
    # A long sentence ends before its last colon.
    sentence = sentence.rpartition(": ")[0] if len(sentence.split()) > MAX_SENTENCE_WORDS else sentence
    return f"{sentence}."


if __name__ == "__main__":
    main()
