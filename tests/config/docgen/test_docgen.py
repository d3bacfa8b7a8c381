import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from nnlo_lib.config import Experiment
from nnlo_lib.config import docgen as reference
from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.config.docgen.default_file import QUICKSTART, default_file
from nnlo_lib.config.docgen.schema import experiment_schema
from nnlo_lib.config.docgen.schema_tree import EXPERIMENT_SCHEMA, discriminator_value, fields, member_blocks
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / reference.REFERENCE_PAGE_FILE).read_text()
FILES = sorted((REPOSITORY / "config").rglob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(experiment_schema())


def test_generated_files_are_in_step():
    """If this fails: nnlo docs."""
    assert reference.write_all(check=True) == 0


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Let the files be written to an empty folder."""
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow" / "Snakefile").touch()
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    return tmp_path


def test_check_shows_what_differs_and_writes_nothing(checkout, capsys):
    assert reference.write_all(check=True) == 1
    shown = capsys.readouterr().out
    assert "+++ config/config.yaml as nnlo docs writes it" in shown
    assert "+name: quickstart" in shown
    assert not (checkout / "config").exists()


def test_written_once_then_left_alone(checkout, capsys):
    assert reference.write_all(check=False) == 0
    assert reference.write_all(check=True) == 0
    capsys.readouterr()
    assert reference.write_all(check=False) == 0
    assert capsys.readouterr().out == ""


def test_introduction_of_the_page_is_kept(checkout):
    reference.write_all(check=False)
    page = checkout / reference.REFERENCE_PAGE_FILE
    page.write_text("# By hand\n\n" + page.read_text().replace("## `data`", "## `date`"))
    assert reference.write_all(check=True) == 1
    reference.write_all(check=False)
    assert page.read_text().startswith("# By hand\n\n<!--")
    assert "## `date`" not in page.read_text()


def test_installed_package_is_told_from_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    with pytest.raises(UserError, match="not a checkout"):
        reference.write_all(check=False)


# The default file


def test_default_file_is_the_quickstart():
    assert yaml.safe_load(default_file()) == QUICKSTART


def test_every_comment_is_a_default(tmp_path):
    """Remove the # of every key: each is there, and nothing changes."""
    path = tmp_path / "all.yaml"
    path.write_text(re.sub(r"^#(\s*\w+:)", r"\1", default_file().partition("\n\n")[2], flags=re.MULTILINE))
    assert load_experiment(path) == load_experiment(REPOSITORY / reference.DEFAULT_EXPERIMENT_FILE)
    whole = yaml.safe_load(path.read_text())
    assert set(whole) == set(Experiment.model_fields)
    assert all(
        set(whole[key]) == set(getattr(Experiment(), key).model_dump()) for key in ("data", "parallel")
    )


(TRAIN,) = member_blocks(fields(EXPERIMENT_SCHEMA)["train"])
ALTERNATIVES = {
    "algorithm": {*ALGORITHMS, "cadmm"} - {"allreduce"},
    "problem": {"regression", "gan"},
    "data.partition": {"by_class", "sorted", "dirichlet"},
    "train.optimizer": {discriminator_value(member) for member in member_blocks(fields(TRAIN)["optimizer"])}
    - {"sgd"},
    "train.schedule": {discriminator_value(member) for member in member_blocks(fields(TRAIN)["schedule"])}
    - {"constant"},
    "topology": {
        discriminator_value(member) for member in member_blocks(fields(EXPERIMENT_SCHEMA)["topology"])
    }
    - {"complete"},
    "compression": {
        discriminator_value(member) for member in member_blocks(fields(EXPERIMENT_SCHEMA)["compression"])
    }
    - {"none"},
}


WANTED = {  # what an alternative needs besides
    "d2": ["topology={name: path, weights: lazy_metropolis}"],
    "adpsgd": ["topology={name: path}"],
    "gan": ["model={name: wgan}", "loss=least_squares"],
    "edges": ["algorithm={name: sgp}"],
    "directed_edges": ["algorithm={name: sgp}", "topology.edges=[[0, 1], [1, 0]]"],
    "topology": ["algorithm={name: sgp}", "parallel.ranks=8"],
}


def test_every_alternative_in_a_comment_is_valid(tmp_path):
    found = re.findall(r"# or (\{name: (\w+).*\})", re.sub(r"\n *#    (?=\S)", " ", default_file()))
    assert sorted(name for _, name in found) == sorted(
        name for names in ALTERNATIVES.values() for name in names
    )
    for alternative, name in found:
        key = next(key for key, names in ALTERNATIVES.items() if name in names)
        more = WANTED.get(name, WANTED.get(key, []))
        load_experiment(starting(tmp_path, name), [f"{key}={alternative}", *more])


def starting(folder, name):
    """Return a file like the default one, of one run; without an optimizer for the algorithm that has none."""
    train = {key: value for key, value in QUICKSTART["train"].items() if key != "optimizer"}
    changed = {"train": train} if name == "prox_pda" else {}
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(QUICKSTART | {"runs": {}} | changed))
    return path


def test_lines_of_the_default_file_fit():
    first, *lines = default_file().splitlines()
    assert first == "# yaml-language-server: $schema=../workflow/schemas/experiment.schema.json"
    assert max(map(len, lines)) <= 110


# The JSON schema


def complaints(settings: object) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(settings)]


def test_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(json.loads((REPOSITORY / reference.SCHEMA_FILE).read_text()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_schema_and_loader_accept_the_files_of_the_repository(path):
    assert complaints(yaml.safe_load(path.read_text())) == []
    load_experiment(path)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        Experiment().model_dump(mode="json"),
        {"model": {"name": "nets/mine.py:build"}},
        {"runs": {"a": {"train": {"optimizer": {"lr": 0.1}}}, "b": {"algorithm": {"sync_every": 2}}}},
        {"algorithm": {"name": "downpour", "optimizer": None}},
        {"search": None},
        {
            "problem": "regression",
            "loss": "mine.py:f",
            "metrics": ["mae", "mae@side"],
            "runs": {"a": {"problem": "gan"}},
        },
        {"problem": {"name": "classification"}, "loss": {"0": "mse"}, "metrics": ["top3_accuracy"]},
        {"loss": None, "metrics": None},
        {"search": {"space": {"a": [1, "b"], "b": 3, "c": None, "d": {"log_uniform": [1e-4, 1]}}}},
        {"search": {"space": {"a": {"choice": [1, 2], "when": {"algorithm.name": "easgd", "b": [1, 2]}}}}},
        {"search": {"method": {"name": "gp"}, "fidelity": {"name": "asha", "factor": 4}}},
    ],
)
def test_schema_accepts(settings):
    assert complaints(settings) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"epocs": 3},
        {"train": {"epoch": 3}},
        {"train": {"epochs": 0}},
        {"train": {"optimizer": {"lr": 0.1}}},
        {"train": {"optimizer": {"name": "adam", "momentum": 0.1}}},
        {"data": {"dataset": "a/b"}},
        {"data": {"reader": {"name": "arrays"}}},
        {"data": {"normalize": "units"}},
        {"model": {"name": "simplecn"}},
        {"seeds": []},
        {"name": "a/b"},
        {"runs": {"a b": {}}},
        {"runs": {"a": {"seeds": [1]}}},
        {"runs": {"a": {"train": {"epoch": 3}}}},
        {"runs": {"a": {"train": {"optimizer": {"lr": 0}}}}},
        {"runs": {"a": {"algorithm": {"name": "downpour", "reduction": "fastest"}}}},
        {"problem": "regresion"},
        {"problem": {"name": "regression", "delta": 1}},
        {"loss": "cross_entrpy"},
        {"metrics": ["acuracy"]},
        {"search": {"trails": 3}},
        {"search": {"space": {"a": []}}},
        {"search": {"space": {"a": {"unifrm": [0, 1]}}}},
        {"search": {"space": {"a": {"uniform": [0]}}}},
        {"search": {"method": {"trees": 3}}},
    ],
)
def test_schema_refuses(settings):
    assert complaints(settings)


# The reference page


def test_mistakes_of_the_page_are_told_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (wrong,) = re.findall(r"<!-- not checked: .* -->\n```yaml\n((?s:.*?))```", PAGE)
    (told,) = re.findall(r"\$ nnlo check mine.yaml\nnnlo: error: (.*?)\n```", PAGE, flags=re.DOTALL)
    Path("mine.yaml").write_text(wrong)
    with pytest.raises(UserError, match="the experiment cannot run") as error:
        load_experiment("mine.yaml")
    assert str(error.value) == told


def test_anchors_of_the_page_are_unique():
    headings = re.findall(r"^#+ (.*)$", PAGE, flags=re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
    assert len(set(anchors)) == len(anchors)


def test_every_key_is_on_the_page():
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    blocks = [experiment_schema(), *experiment_schema()["$defs"].values()]
    assert {key for block in blocks for key in block.get("properties", {})} == rows
