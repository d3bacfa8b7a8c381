"""Inputs of `nnlo import` as users write them; the expected values are written by hand from the meaning in the old system."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from nnlo_lib.compat.importers.nnlo import OPTIONS as NNLO_OPTIONS
from nnlo_lib.compat.importers.options import parse_bool
from nnlo_lib.compat.importers.pydtnn import OPTIONS as PYDTNN_OPTIONS
from nnlo_lib.compat.importers.theano_mpi import MODELS
from nnlo_lib.compat.importers.translate import import_experiment
from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import with_numbers_of_gpus

CORPUS = Path(__file__).parent / "corpus"
OPTIONS = "--model mnist --loss categorical_crossentropy --epochs 3"
PLACEHOLDERS = {
    "{nnlo}": f"TrainingDriver {OPTIONS}",
    "{options}": OPTIONS,
    "{cifar10}": "MODELFILE=theanompi.models.cifar10\nMODELCLASS=Cifar10_model\nDEVICES=cuda0,cuda1\n",
}
# NNLO and mpi_learn used the visible GPUs, unless the command or its environment named others.
USES_VISIBLE_GPUS = re.compile(r"(Training|Optimization|MPI|MPIG)Driver")
# Values of every input that its row does not name, so that no value appears that the input does not state.
COMMON = {
    "ranks_per_gpu": ("parallel.ranks_per_gpu", 1),
    "threads": ("parallel.threads_per_rank", 1), "nodes": ("resources.nodes", 1), "runtime": ("resources.runtime", 60),
    "partition": ("resources.partition", None), "account": ("resources.account", None), "container": ("resources.container", None),
}  # fmt: skip
# open: keys that decide what is trained and that the user has to fill in; the experiment is refused until then.
# notes, absent: texts that are on the page below the command, or not; keys: values, `any` if not None.
FIELDS = {
    "input", "files", "status", "says", "lost", "notes", "absent", "ranks", "keys", "runs", "dimensions", "gpus", "open",
}  # fmt: skip


def rows() -> list[Any]:
    """Return all rows of the corpus as test parameters."""
    return [
        pytest.param(row, id=f"{file.stem}-{number}")
        for file in sorted(CORPUS.glob("*.yaml"))
        for number, row in enumerate(yaml.safe_load(file.read_text()), start=1)
    ]


def filled(text: str) -> str:
    """Return a text with the values of its placeholders."""
    for placeholder, value in PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    return text


def body(page: str) -> str:
    """Return the page without the command at its head, in one line without comment signs."""
    page = re.sub(r"\A# .*\n(#   .*\n)+", "", page)
    return " ".join(page.replace("#", " ").split())


def value_at(block: Any, key: str) -> Any:
    """Return the value of a dotted key; keys of a search space contain dots."""
    if key.startswith("search.space."):
        dimension = block.search.space[key.removeprefix("search.space.")].model_dump()
        return {kind: list(values) for kind, values in dimension.items()}
    if key.startswith("runs."):
        _, run, key = key.split(".", 2)
        block = block.variants[run]
    for part in key.split("."):
        block = block[part] if isinstance(block, dict) else getattr(block, part)
    return list(block) if isinstance(block, tuple) else block


@pytest.mark.parametrize("row", rows())
def test_corpus(row, tmp_path, monkeypatch):
    assert set(row) <= {*FIELDS, *COMMON}
    monkeypatch.chdir(tmp_path)
    for name, text in row.get("files", {}).items():
        Path(name).write_text(filled(text))
    if row.get("status") == 2:
        with pytest.raises(UserError) as error:
            import_experiment([filled(row["input"])])
        assert row["says"] in str(error.value)
        return
    imported = import_experiment([filled(row["input"])])
    settings = yaml.safe_load(imported.text)
    default = "auto" if USES_VISIBLE_GPUS.search(filled(str(row))) else 0
    assert settings.get("parallel", {}).get("gpus_per_rank", 0) == row.get("gpus", default)
    assert (3 if imported.count_line else 0) == row.get("status", 0), imported.count_line
    assert [each for each in row.get("lost", []) if each not in imported.count_line] == [], (
        imported.count_line
    )
    text = body(imported.text)
    assert [each for each in row.get("notes", []) if each not in text] == [], text
    assert [each for each in row.get("absent", []) if each in text] == [], text
    for key in row.get("open", []):
        with pytest.raises(ValidationError):
            Experiment.model_validate(with_numbers_of_gpus(settings, 1000))
        drop(settings, key.split("."))
    check_values(row, Experiment.model_validate(with_numbers_of_gpus(settings, 1000)))


def drop(settings: dict[str, Any], path: list[str]) -> None:
    """Remove a key, and its section if the section is then empty."""
    if path[1:]:
        drop(settings[path[0]], path[1:])
    if not path[1:] or not settings[path[0]]:
        del settings[path[0]]


def check_values(row: dict[str, Any], experiment: Experiment) -> None:
    """Assert the values that a row names, and the defaults of those that it does not name."""
    expected = {key: row.get(name, default) for name, (key, default) in COMMON.items()}
    expected |= {"parallel.ranks": row["ranks"], **row.get("keys", {})}
    for key, value in expected.items():
        found = value_at(experiment, key)
        if value == "any":
            assert found is not None, key
        else:
            assert found == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), key
    if "runs" in row:
        assert list(experiment.variants) == row["runs"]
    if "dimensions" in row:
        assert len(experiment.search.space) == row["dimensions"]


def test_the_page_names_every_option_of_nnlo():
    values = {int: "2", float: "0.5", str: "word"}
    others = {"model", "mode", "early-stopping", "target-metric", "worker-optimizer-params"}
    for name in NNLO_OPTIONS.keys() - others:
        parse = NNLO_OPTIONS[name].parse
        word = f"--{name}" + ("" if parse is None else f" {values[parse]}")
        end = " --checkpoint C" if name == "restore" else ""
        command = f"mpirun -np 5 TrainingDriver --model mnist --loss mse --mode downpour {word}{end}"
        assert word in body(import_experiment([command]).text), name


PYDTNN_VALUES = {
    "lr_schedulers": "warm_up", "model": "simplemlp", "dataset": "mnist", "optimizer": "rmsprop",
    "metrics": "categorical_mse", "loss_func": "categorical_accuracy", "dtype": "float64", "tensor_format": "NCHW",
}  # fmt: skip
OPTIMIZERS = {"beta1": "adam", "beta2": "adam", "epsilon": "adam", "rho": "rmsprop"}
WITH_OTHERS = {"parallel", "flip_images_prob", "crop_images_size", "crop_images_prob"}


def test_the_page_names_every_option_of_pydtnn():
    for name, option in PYDTNN_OPTIONS.items():
        if name in WITH_OTHERS or name.endswith("_metric"):
            continue
        values = {int: "3", float: "0.25", str: "word", parse_bool: str(not option.default)}
        value = PYDTNN_VALUES.get(name) or values[option.parse]
        rule = f"--optimizer={OPTIMIZERS[name]} " if name in OPTIMIZERS else ""
        text = body(
            import_experiment([f"mpirun -np 2 benchmarks_CNN.py --parallel=data {rule}--{name}={value}"]).text
        )
        assert f"--{name} {value}" in text or value in text, name


@pytest.mark.parametrize("rule", ["BSP", "EASGD", "GOSGD"])
def test_every_model_of_theano_mpi_is_imported(rule, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for cls in (cls for cls in MODELS if " " not in cls):
        Path("m.cfg").write_text(
            f"RULE={rule}\nMODELFILE=theanompi.models.any\nMODELCLASS={cls}\nDEVICES=cuda0,cuda1\n"
        )
        experiment, model = yaml.safe_load(import_experiment(["m.cfg"]).text), MODELS[cls]
        assert experiment["model"]["name"] == model.name
        assert experiment["train"].get("epochs", 10) == model.epochs
