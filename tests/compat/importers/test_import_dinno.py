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
# Keys of the paper's density experiment, with smaller values.
DENSITY = {
    "experiment": {
        "name": "dense", "seed": 0, "loss": "BCE", "model": {"shape": [2, 32, 8, 1], "scale": 0.05},
        "data": {
            "data_dir": "plans/", "waypoint_subdir": "paths", "num_beams": 4, "beam_samps": 5, "border_width": 3, "spline_res": 30,
            "num_scans_in_window": 40, "split_type": "trajectory", "round_density": True, "num_validation_scans": 500,
            "samp_distribution_factor": 1.0,
        },
        "individual_training": {"train_solo": True, "optimizer": "adam", "lr": 0.002, "epochs": 1},
    },
    "problem_configs": {
        "one": {
            **COMMON, "problem_name": "one", "train_batch_size": 100, "comm_radius": 90.0, "save_models": True, "dynamic_graph": True,
            "metrics": ["validation_loss", "mesh_grid_density", "current_position", "current_graph"],
            "metrics_config": {"evaluate_frequency": 4, "mesh_only_at_end": True}, "optimizer_config": RULES["dinno"],
        }
    },
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


@pytest.fixture
def building(page):
    """Image of 120 x 80 pixels, and paths of four waypoints for three robots, in the folder of the file."""
    Path("plans/paths").mkdir(parents=True)
    Image.new("L", (120, 80)).save("plans/floor_img.png")
    for robot in range(1, 4):
        corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [0.1 * robot, 0.2]])
        np.save(f"plans/paths/{robot}.npy", corners)


def in_one_line(text):
    """Return a page without comment signs and line breaks."""
    return " ".join(text.replace("#", " ").split())


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
    named = [
        "val_batch_size 128",
        "verbose_evals True",
        "consensus_error",
        "../data/",
        "./outputs/",
        "gen_attempts",
    ]
    assert [each for each in named if each not in text] == []


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


ONE = "problem_configs__one__"
MISTAKES = [
    ("experiment: DiNNO has no key 'graf'; did you mean 'graph'?", README, {"experiment__graf": {}}),
    ("no data_split_type 'heter'; did you mean 'hetero'?", README, {"experiment__data_split_type": "heter"}),
    ("experiment.graph.num_nodes: expected an integer above 0, got 'five'", README, {"experiment__graph__num_nodes": "five"}),
    ("rho_init: expected a number above 0, got []", README, {"problem_configs__problem1__optimizer_config__rho_init": []}),
    ("problem_configs: expected a mapping of keys", README, {"problem_configs": ["x"]}),
    ("problem_configs contains no problem", README, {"problem_configs": {}}),
    ("topology", README, {"experiment__graph__type": "whel"}),
    ("problem_configs.problem1: DiNNO has no key 'batch'", README, {"problem_configs__problem1__batch": 3}),
    ("DiNNO has no key 'rho'; did you mean 'rho_init'", README, {"problem_configs__problem1__optimizer_config__rho": 3}),
    ("DiNNO has no key 'alpha'", README, {"problem_configs__problem1__optimizer_config__alpha": 0.1}),
    ("no alg_name 'dsgg'", README, {"problem_configs__problem1__optimizer_config__alg_name": "dsgg"}),
    ("experiment: add the section graph, scaling, or data", README, {"experiment": {"model": {"num_filters": 3}}}),
    ("no waypoint_subdir; robots at random places", README, {"experiment": {"data": {"num_beams": 20}, "loss": "BCE"}}),
    ("individual_training.optimizer: DiNNO has no optimizer 'x'", DENSITY, {"experiment__individual_training__optimizer": "x"}),
    ("experiment.scaling: the key const is missing", README, {"experiment__scaling": {"min_fied": 1, "max_fied": 2, "num_trials": 2}}),
    ("problem_configs: expected a mapping of keys, got [1]", README, {"problem_configs": [1]}),
    ("the key num_trials is missing", README, {"experiment__scaling": {"const": "num_nodes", "num_nodes": 5, "min_fied": 1, "max_fied": 2}}),
    ("problem 1: comm_radius is missing", README, {"experiment": {"data": {"waypoint_subdir": "paths"}}}),
    ("experiment.loss: DiNNO has no loss 'NLL'; known: BCE, L1, MSE", DENSITY, {"experiment__loss": "NLL"}),
    ("experiment.data: expected a mapping of keys, got []", DENSITY, {"experiment__data": []}),
    ("beam_samps: expected an integer of at least 2, got 1", DENSITY, {"experiment__data__beam_samps": 1}),
    ("beam_length: expected a number above 0, got nan", DENSITY, {"experiment__data__beam_length": float("nan")}),
    ("border_width: expected an integer of at least 0, got None", DENSITY, {"experiment__data__border_width": None}),
    ("data_dir: expected a text, got 5", DENSITY, {"experiment__data__data_dir": 5}),
    ("experiment.model.shape: expected a list of 2 (x, y)", DENSITY, {"experiment__model__shape": 5}),
    ("positive hidden widths and 1 (density), got [2, 8, 2]", DENSITY, {"experiment__model__shape": [2, 8, 2]}),
    ("loss_average", DENSITY, {ONE + "metrics": ["train_loss_moving_average"], ONE + "metrics_config__tloss_decay": 2}),
    ("a scaling study trains with MNIST; remove data or scaling", DENSITY, {"experiment__scaling": {}}),
]  # fmt: skip
STATIC = {"num_nodes": 2, "type": "random", "p": 0.75, "gen_attempts": 10}


def without_radius(**changes):
    """Return the density experiment with a random graph in place of radios."""
    settings = changed(DENSITY, experiment__graph=STATIC, **changes)
    del settings["problem_configs"]["one"]["comm_radius"]
    return settings


def test_the_density_experiment_has_its_building_paths_windows_and_radios(page, building):
    text = page(DENSITY)
    assert "not translated" not in text
    run, alone = load_experiment("imported.yaml").variants.values()
    assert run.observe.maps
    assert alone.observe.maps
    assert run.train.validate_every == 8, "four rounds of two steps"
    effectless = text.partition("without effect")[2].partition("\nname:")[0]
    keys = [*DENSITY["experiment"]["data"], "save_models", "mesh_only_at_end", "train_solo"]
    assert [key for key in keys if key in effectless] == []
    assert "out of step" not in text
    assert (run.data.reader.scans, run.data.reader.border, run.data.reader.seed) == (30 * 3, 3, 0)
    assert run.data.stream.window == 40 * 4 * 5
    phase = pytest.approx(0.05 / 2**0.5, rel=1e-4)
    assert run.model.args == {"hidden": [32, 8], "scale": 0.05 * 60, "phase": phase}
    # 18 steps of 100 of 1,800 points, two a round
    assert (run.topology.radius, run.topology.rounds) == (90 / 60, 9)
    assert run.train.epochs == -(-2000 // 9)
    assert run.parallel.ranks == len(run.data.reader.waypoints) == 3
    contents = read(Path(run.data.source), 10**6, **run.data.reader.model_dump(exclude={"name", "adaptor"}))
    assert sum(len(unit.read().labels) for unit in contents.units if unit.split == "train") == 3 * 1800


def test_links_of_a_density_experiment_that_stay(page, building):
    text = page(without_radius(experiment__data_dir="../data/"))
    run, _ = load_experiment("imported.yaml").variants.values()
    assert (run.topology.name, run.topology.p, run.topology.gen_attempts) == ("random", 0.75, 10)
    # DiNNO shuffles all scans of a robot if its links stay.
    assert (run.data.partition.name, run.data.stream) == ("contiguous", None)
    assert (run.parallel.ranks, run.data.reader.waypoints) == (2, ("paths/1.npy", "paths/2.npy"))
    assert (run.train.epochs, run.train.steps_per_epoch) == (500, 4 * 2)
    line = in_one_line(text)
    assert "the first 2 of 3 files of waypoints by name" in line
    assert "num_scans_in_window (used only with comm_radius)" in line
    assert "current_position: not translated" in line
    assert "experiment.data_dir ../data/: density experiments read only data.data_dir" in line
    assert "downloads MNIST" not in line
    page(DENSITY | {"experiment": DENSITY["experiment"] | {"graph": STATIC}})
    assert "experiment.graph (the links follow from comm_radius)" in Path("imported.yaml").read_text()


def test_numbers_of_waypoints_that_differ(page, building):
    np.save("plans/paths/2.npy", np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5]]))
    line = in_one_line(page(DENSITY))
    assert "every robot has 90 scans, because 1.npy has 4 waypoints" in line
    assert "differs for 2.npy (3 waypoints)" in line
    # A robot without links is not trained, so that its file does not matter.
    np.save("plans/paths/2.npy", np.load("plans/paths/1.npy"))
    np.save("plans/paths/3.npy", np.zeros((9, 2)))
    assert "waypoints)" not in page(without_radius())


@pytest.mark.parametrize(
    ("changes", "numbers", "batch"),
    [
        ({ONE + "train_batch_size": 95}, ["take 9.5 rounds (19 steps", "graph 10", "epochs 223", "rounds 9,"], 100),
        # The paper's own numbers: 1,215,000 points of a robot.
        (
            {
                "experiment__data": {"data_dir": "elsewhere", "waypoint_subdir": "tight_paths", "spline_res": 30},
                ONE + "train_batch_size": 12500, ONE + "optimizer_config__primal_iterations": 5,
            },
            ["take 19.6 rounds (98 steps of 12500 points, 5 a round)", "graph 20", "epochs 100", "rounds 20,"], 12150,
        ),
    ],
)  # fmt: skip
def test_rounds_of_an_epoch_that_are_not_whole(page, building, changes, numbers, batch):
    line = in_one_line(page(changed(DENSITY, **changes)))
    assert [each for each in [*numbers, f"train.batch_size {batch}"] if each not in line] == [], line
    assert "out of step" not in page(changed(DENSITY, **changes | {ONE + "train_batch_size": batch}))


@pytest.mark.parametrize(
    ("settings", "damaged", "sentence"),
    [
        (without_radius(experiment__data__split_type="random"), None, "split_type: expected trajectory, got 'random'"),
        (changed(without_radius(), experiment__graph__num_nodes=4), None, "num_nodes: expected at most 3, the files of"),
        (changed(without_radius(), experiment__graph__p="x"), None, "experiment.graph.p: expected a number of at least 0, got 'x'"),
        (DENSITY, "plans/paths/3.npy", "3.npy: no places"),
        (DENSITY, "plans/floor_img.png", "floor_img.png: cannot be read as an image"),
    ],
)  # fmt: skip
def test_mistakes_in_files_and_graphs_of_a_building(page, building, settings, damaged, sentence):
    if damaged:
        Path(damaged).write_text("x")
    with pytest.raises(UserError) as error:
        page(settings)
    assert sentence in str(error.value)


@pytest.mark.parametrize(("sentence", "settings", "changes"), MISTAKES)
def test_mistakes(page, sentence, settings, changes):
    with pytest.raises(UserError) as error:
        page(changed(settings, **changes))
    assert sentence in str(error.value)


def test_the_page_names_every_key(page):
    text = page(PAPER)
    keys = {key for rule in RULES.values() for key in rule} | COMMON.keys() - {"metrics_config"}
    assert [key for key in keys if key not in text] == []
