"""Import of the file in DiNNO's README, and of the settings in its paper."""

import copy
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from nnlo_lib.compat.importers.translate import import_experiment
from nnlo_lib.config.checkpoint import ProfileConfig
from nnlo_lib.config.model import ModelConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.lidar import read
from nnlo_lib.experiment.load import load_experiment

README = {
    "experiment": {
        "name": "dist_cnn_cadmm_scaled_v_const", "data_dir": "../data/", "output_metadir": "./outputs/", "writeout": True,
        "data_split_type": "hetero", "loss": "NLL",
        "graph": {"num_nodes": 5, "type": "wheel", "p": 0.6, "gen_attempts": 10},
        "model": {"num_filters": 3, "kernel_size": 5, "linear_width": 64},
    },
    "problem_configs": {
        "problem1": {
            "problem_name": "vanilla_cadmm", "train_batch_size": 64, "val_batch_size": 128, "evaluate_frequency": 20,
            "verbose_evals": True,
            "metrics": ["forward_pass_count", "validation_loss", "consensus_error", "top1_accuracy", "current_epoch"],
            "optimizer_config": {
                "alg_name": "cadmm", "rho_init": 1.0, "rho_scaling": 1.0, "outer_iterations": 30, "primal_iterations": 5,
                "primal_optimizer": "adam", "primal_lr": 0.005,
            },
        }
    },
}  # fmt: skip
RULES = {
    "dinno": {
        "alg_name": "dinno", "rho_init": 0.5, "rho_scaling": 1.0003, "outer_iterations": 2000, "primal_iterations": 2,
        "primal_optimizer": "adam", "persistant_primal_opt": False, "primal_lr_start": 0.005, "primal_lr_finish": 0.0005,
        "lr_decay_type": "log", "profile": False,
    },
    "dsgt": {"alg_name": "dsgt", "outer_iterations": 2000, "alpha": 0.005, "init_grads": True},
    "dsgd": {"alg_name": "dsgd", "outer_iterations": 2000, "alpha0": 0.005, "mu": 0.001},
}  # fmt: skip
COMMON = {
    "train_batch_size": 64, "val_batch_size": 128, "metrics": ["top1_accuracy"],
    "metrics_config": {"evaluate_frequency": 20},
}  # fmt: skip
PAPER = {
    "experiment": README["experiment"]
    | {"graph": {"num_nodes": 10, "type": "cycle", "p": 0.3, "gen_attempts": 100}},
    "problem_configs": {
        name: {"problem_name": name, **COMMON, "optimizer_config": rule} for name, rule in RULES.items()
    },
}


def changed(settings, **changes):
    """Return a copy of the settings with other values; `experiment__graph__type` names a nested key."""
    settings = copy.deepcopy(settings)
    for path, value in changes.items():
        *above, last = path.split("__")
        block = settings
        for part in above:
            block = block[part]
        block[last] = value
    return settings


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Return a function that imports a file with these settings and returns the text."""
    monkeypatch.chdir(tmp_path)

    def imported(settings, words="paper.yaml"):
        Path("paper.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
        text = import_experiment([words]).text
        Path("imported.yaml").write_text(text)
        return text

    return imported


def runs(page, settings):
    page(settings)
    return load_experiment("imported.yaml").variants


@pytest.mark.parametrize("words", ["paper.yaml", "> python dist_mnist_ex.py paper.yaml"])
def test_readme(page, words):
    text = page(README, words)
    experiment = load_experiment("imported.yaml")
    assert experiment.name == "dist_cnn_cadmm_scaled_v_const"
    assert (experiment.parallel.ranks, experiment.parallel.transport) == (5, "simulated")
    data = experiment.data
    assert (experiment.topology.name, data.dataset, data.partition.name) == ("wheel", "mnist", "by_class")
    assert experiment.model == ModelConfig(name="dinno_conv", args={"filters": 3, "kernel": 5, "width": 64})
    rule, train = experiment.algorithm, experiment.train
    assert (rule.name, rule.rho, rule.rho_scaling, rule.primal_iterations) == ("cadmm", 1.0, 1.0, 5)
    assert (train.precision, train.batch_size) == ("float64", 64)
    assert (train.optimizer.name, train.optimizer.lr) == ("adam", 0.005)
    assert train.epochs * train.steps_per_epoch == 30 * 5
    assert train.steps_per_epoch <= 20 * 5
    for named in (
        "val_batch_size 128",
        "verbose_evals True",
        "consensus_error",
        "../data/",
        "./outputs/",
        "gen_attempts",
    ):
        assert named in text


def test_paper(page):
    variants = runs(page, PAPER)
    assert list(variants) == ["dinno", "dsgt", "dsgd"]
    for name, steps in {"dinno": 2, "dsgt": 1, "dsgd": 1}.items():
        assert (variants[name].train.epochs, variants[name].train.steps_per_epoch) == (100, 20 * steps)
        assert (variants[name].parallel.ranks, variants[name].topology.name) == (10, "cycle")
    assert variants["dinno"].algorithm.rho == pytest.approx(0.50015)
    assert variants["dinno"].train.schedule.model_dump() == {"name": "log", "final": 0.0005}
    assert variants["dsgt"].train.optimizer.lr == 0.005
    assert variants["dsgd"].train.schedule.mu == 0.001
    assert variants["dsgd"].train.optimizer.lr == pytest.approx(0.005 * (1 - 0.001 * 0.005), rel=1e-12)


def test_records_and_profile_belong_to_the_problem_that_asks_for_them(page):
    metrics = ["consensus_error", "validation_as_vector", "train_loss_moving_average"]
    settings = changed(
        PAPER,
        problem_configs__dinno__metrics=metrics,
        problem_configs__dinno__metrics_config={"evaluate_frequency": 20, "tloss_decay": 0.1},
        problem_configs__dinno__optimizer_config__profile=True,
    )
    variants = runs(page, settings)
    observe = variants["dinno"].observe
    assert (observe.consensus_matrix, observe.sample_metrics, observe.loss_average) == (True, True, 0.9)
    # The third round of two steps, and two more rounds.
    assert observe.profile == ProfileConfig(first=5, steps=6)
    other = variants["dsgt"].observe
    assert (other.consensus_matrix, other.profile) == (False, None)
    assert "not translated" not in Path("imported.yaml").read_text()


def test_individual_training_and_delaunay_graph(page):
    solo = {"train_solo": True, "optimizer": "adam", "lr": 0.002, "epochs": 6}
    graph = {"num_nodes": 10, "type": "delaunay"}
    variants = runs(page, changed(PAPER, experiment__individual_training=solo, experiment__graph=graph))
    alone = variants["alone"]
    assert (alone.algorithm.name, alone.train.epochs, alone.train.optimizer.lr) == ("individual", 6, 0.002)
    assert variants["dinno"].topology.name == "delaunay"


MISTAKES = {
    "experiment: DiNNO has no key 'graf'; did you mean 'graph'?": {"experiment__graf": {}},
    "no split 'heter'; did you mean 'hetero'?": {"experiment__data_split_type": "heter"},
    "num_nodes: expected a positive integer, got 'five'": {"experiment__graph__num_nodes": "five"},
    "train_batch_size: expected a positive integer, got 0": {
        "problem_configs__problem1__train_batch_size": 0
    },
    "rho_init: expected a number, got []": {"problem_configs__problem1__optimizer_config__rho_init": []},
    "problem_configs: expected a mapping of keys": {"problem_configs": ["x"]},
    "problem_configs contains no problem": {"problem_configs": {}},
    "topology": {"experiment__graph__type": "whel"},
    "DiNNO has no key 'batch'": {"problem_configs__problem1__batch": 3},
    "DiNNO has no key 'rho'; did you mean 'rho_init'": {
        "problem_configs__problem1__optimizer_config__rho": 3
    },
    "no algorithm 'dsgg'": {"problem_configs__problem1__optimizer_config__alg_name": "dsgg"},
    "experiment: add the section graph, scaling, or data": {"experiment": {"model": {"num_filters": 3}}},
    "no waypoint_subdir; robots at random places": {"experiment": {"data": {"num_beams": 20}, "loss": "BCE"}},
    "DiNNO has no key 'num_beam'; did you mean 'num_beams'": {"experiment": {"data": {"num_beam": 20}}},
    "problem 1: comm_radius is missing": {"experiment": {"data": {"waypoint_subdir": "paths"}}},
}


def test_the_density_experiment_has_its_building_paths_windows_and_radios(tmp_path):
    """The file of the paper, with an image of 120 x 80 pixels and paths of four waypoints."""
    (tmp_path / "plans/paths").mkdir(parents=True)
    Image.new("L", (120, 80)).save(tmp_path / "plans/floor_img.png")
    for robot in range(1, 4):
        corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [0.1 * robot, 0.2]])
        np.save(tmp_path / f"plans/paths/{robot}.npy", corners)
    data = {
        "data_dir": "plans/", "waypoint_subdir": "paths", "num_beams": 4, "beam_samps": 5, "border_width": 3, "spline_res": 30,
        "num_scans_in_window": 40, "split_type": "trajectory", "round_density": True, "num_validation_scans": 500,
        "samp_distribution_factor": 1.0,
    }  # fmt: skip
    problem = {
        **COMMON, "train_batch_size": 100, "comm_radius": 90.0, "save_models": True, "dynamic_graph": True,
        "metrics": ["validation_loss", "mesh_grid_density", "current_position", "current_graph"],
        "metrics_config": {"evaluate_frequency": 4, "mesh_only_at_end": True},
    }  # fmt: skip
    settings = {
        "experiment": {
            "name": "dense",
            "data": data,
            "loss": "BCE",
            "model": {"shape": [2, 32, 8, 1], "scale": 0.05},
            "individual_training": {"train_solo": True, "optimizer": "adam", "lr": 0.002, "epochs": 1},
        },
        "problem_configs": {"one": {"problem_name": "one", **problem, "optimizer_config": RULES["dinno"]}},
    }
    path = tmp_path / "dense.yaml"
    path.write_text(yaml.safe_dump(settings))
    written = tmp_path / "nnlo.yaml"
    imported = import_experiment([str(path)])
    written.write_text(imported.text)
    assert imported.untranslated == ()
    run, alone = load_experiment(written).variants.values()
    assert run.observe.maps
    assert alone.observe.maps
    assert run.train.validate_every == 8, "four rounds of two steps"
    effectless = imported.text.partition("without effect")[2].partition("\nname:")[0]
    assert [
        key for key in [*data, "save_models", "mesh_only_at_end", "train_solo"] if key in effectless
    ] == []
    assert (run.data.reader.scans, run.data.reader.border, run.data.reader.seed) == (30 * 3, 3, 0)
    assert run.data.stream.window == 40 * 4 * 5
    assert run.model.args == {
        "hidden": [32, 8],
        "scale": 0.05 * 60,
        "phase": pytest.approx(0.05 / 2**0.5, rel=1e-4),
    }
    assert (run.topology.radius, run.topology.rounds) == (
        90 / 60,
        9,
    )  # 18 steps of 100 of 1,800 points, two a round
    assert run.train.epochs == -(-2000 // 9)
    assert run.parallel.ranks == len(run.data.reader.waypoints) == 3
    contents = read(Path(run.data.source), 10**6, **run.data.reader.model_dump(exclude={"name", "adaptor"}))
    assert sum(len(unit.read().labels) for unit in contents.units if unit.split == "train") == 3 * 1800


@pytest.mark.parametrize(("sentence", "changes"), MISTAKES.items())
def test_mistakes(page, sentence, changes):
    with pytest.raises(UserError) as error:
        page(changed(README, **changes))
    assert sentence in str(error.value)


def test_the_page_names_every_key(page):
    text = page(PAPER)
    keys = {key for rule in RULES.values() for key in rule} | COMMON.keys() - {"metrics_config"}
    assert [key for key in keys if key not in text] == []
