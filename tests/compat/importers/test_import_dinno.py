"""Import of the file in DiNNO's README, and of the settings in its paper."""

import pytest
import yaml

from nnlo_lib.config.model import ModelConfig
from nnlo_lib.config.observe import ProfileConfig

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


def write(folder, settings, name="dist_mnist_template.yaml"):
    (folder / name).write_text(yaml.safe_dump(settings, sort_keys=False))


@pytest.mark.parametrize(
    "words", [["dist_mnist_template.yaml"], ["> python dist_mnist_ex.py dist_mnist_template.yaml"]]
)
def test_readme(imported, folder, words):
    write(folder, README)
    experiment, text = imported(*words)
    assert experiment.name == "dist_cnn_cadmm_scaled_v_const"
    assert (experiment.parallel.ranks, experiment.parallel.transport) == (5, "simulated")
    assert experiment.topology.name == "wheel"
    assert (experiment.data.dataset, experiment.data.partition.name) == ("mnist", "by_class")
    assert experiment.model == ModelConfig(name="dinno_conv", args={"filters": 3, "kernel": 5, "width": 64})
    assert experiment.train.precision == "float64"
    algorithm = experiment.algorithm
    assert (algorithm.name, algorithm.rho, algorithm.rho_scaling, algorithm.primal_iterations) == (
        "cadmm",
        1.0,
        1.0,
        5,
    )
    assert (experiment.train.optimizer.name, experiment.train.optimizer.lr) == ("adam", 0.005)
    assert experiment.train.epochs * experiment.train.steps_per_epoch == 30 * 5
    assert experiment.train.steps_per_epoch <= 20 * 5
    assert experiment.train.batch_size == 64
    for told in (
        "val_batch_size 128",
        "verbose_evals True",
        "consensus_error",
        "../data/",
        "./outputs/",
        "gen_attempts",
    ):
        assert told in text


def paper():
    """Return DiNNO's file for the study of digits in the paper."""
    dinno = {
        "alg_name": "dinno", "rho_init": 0.5, "rho_scaling": 1.0003, "outer_iterations": 2000, "primal_iterations": 2,
        "primal_optimizer": "adam", "persistant_primal_opt": False, "primal_lr_start": 0.005, "primal_lr_finish": 0.0005,
        "lr_decay_type": "log", "profile": False,
    }  # fmt: skip
    common = {
        "train_batch_size": 64,
        "val_batch_size": 128,
        "metrics": ["top1_accuracy"],
        "metrics_config": {"evaluate_frequency": 20},
    }
    rules = {
        "dinno": dinno,
        "dsgt": {"alg_name": "dsgt", "outer_iterations": 2000, "alpha": 0.005, "init_grads": True},
        "dsgd": {"alg_name": "dsgd", "outer_iterations": 2000, "alpha0": 0.005, "mu": 0.001},
    }
    problems = {
        name: {"problem_name": name, **common, "optimizer_config": rule} for name, rule in rules.items()
    }
    graph = {"num_nodes": 10, "type": "cycle", "p": 0.3, "gen_attempts": 100}
    return {"experiment": {**README["experiment"], "graph": graph}, "problem_configs": problems}


def test_paper(imported, folder):
    write(folder, paper(), "paper.yaml")
    experiment, _ = imported("paper.yaml")
    runs = experiment.variants
    assert list(runs) == ["dinno", "dsgt", "dsgd"]
    for name, steps in {"dinno": 2, "dsgt": 1, "dsgd": 1}.items():
        assert (runs[name].train.epochs, runs[name].train.steps_per_epoch) == (100, 20 * steps)
        assert (runs[name].parallel.ranks, runs[name].topology.name) == (10, "cycle")
    assert runs["dinno"].algorithm.rho == pytest.approx(0.50015)
    assert runs["dinno"].train.schedule.model_dump() == {"name": "log", "final": 0.0005}
    assert runs["dsgt"].train.optimizer.lr == 0.005
    assert runs["dsgd"].train.schedule.mu == 0.001
    assert runs["dsgd"].train.optimizer.lr == pytest.approx(0.005 * (1 - 0.001 * 0.005), rel=1e-12)


def test_what_dinno_records(imported, folder):
    settings = paper()
    problem = settings["problem_configs"]["dinno"]
    problem["metrics"] = ["consensus_error", "validation_as_vector", "train_loss_moving_average"]
    problem["metrics_config"] = {"evaluate_frequency": 20, "tloss_decay": 0.1}
    write(folder, settings, "paper.yaml")
    experiment, text = imported("paper.yaml")
    observe = experiment.variants["dinno"].observe
    assert (observe.consensus_matrix, observe.sample_metrics, observe.loss_average) == (True, True, 0.9)
    assert not experiment.variants["dsgt"].observe.consensus_matrix
    assert "not translated" not in text


def test_delaunay_graph(imported, folder):
    settings = paper()
    settings["experiment"]["graph"] = {"num_nodes": 10, "type": "delaunay"}
    write(folder, settings, "paper.yaml")
    assert imported("paper.yaml")[0].topology.name == "delaunay"


def test_alone(imported, folder):
    settings = paper()
    settings["experiment"]["individual_training"] = {
        "train_solo": True,
        "optimizer": "adam",
        "lr": 0.002,
        "epochs": 6,
    }
    write(folder, settings, "paper.yaml")
    alone = imported("paper.yaml")[0].variants["alone"]
    assert (alone.algorithm.name, alone.train.epochs, alone.train.optimizer.lr) == ("individual", 6, 0.002)


def test_profile(imported, folder):
    settings = paper()
    settings["problem_configs"]["dinno"]["optimizer_config"]["profile"] = True
    write(folder, settings, "paper.yaml")
    runs = imported("paper.yaml")[0].variants
    # The third round of two steps, and two more rounds.
    assert runs["dinno"].observe.profile == ProfileConfig(first=5, steps=6)
    assert runs["dsgd"].observe.profile is None


def test_density_experiments_are_refused(refused, folder):
    settings = paper()
    experiment = settings["experiment"]
    del experiment["graph"]
    experiment |= {"model": {"shape": [2, 256, 64, 1]}, "data": {"num_beams": 20}, "loss": "BCE"}
    write(folder, settings, "density.yaml")
    assert "density.yaml: this is a density experiment of DiNNO" in refused("density.yaml")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("experiment", "graf"), {}, "experiment: DiNNO has no key 'graf'; did you mean 'graph'?"),
        (("experiment", "data_split_type"), "heter", "no split 'heter'; did you mean 'hetero'?"),
        (
            ("experiment", "graph", "num_nodes"),
            "five",
            "num_nodes: expected a positive integer, got 'five'",
        ),
        (
            ("problem_configs", "problem1", "train_batch_size"),
            0,
            "train_batch_size: expected a positive integer, got 0",
        ),
        (
            ("problem_configs", "problem1", "optimizer_config", "rho_init"),
            [],
            "rho_init: expected a number, got []",
        ),
        (("problem_configs",), ["x"], "problem_configs: expected a mapping of keys"),
        (("problem_configs",), {}, "problem_configs contains no problem"),
        (("experiment", "graph", "type"), "whel", "topology"),
        (("problem_configs", "problem1", "batch"), 3, "DiNNO has no key 'batch'"),
        (
            ("problem_configs", "problem1", "optimizer_config", "rho"),
            3,
            "DiNNO has no key 'rho'; known: alg_name",
        ),
        (("problem_configs", "problem1", "optimizer_config", "alg_name"), "dsgg", "no algorithm 'dsgg'"),
    ],
)
def test_mistakes(refused, folder, path, value, sentence):
    settings = yaml.safe_load(yaml.safe_dump(README))
    block = settings
    for part in path[:-1]:
        block = block[part]
    block[path[-1]] = value
    write(folder, settings)
    assert sentence in refused("dist_mnist_template.yaml")


def test_every_key_is_told_of(imported, folder):
    settings = paper()
    write(folder, settings, "paper.yaml")
    text = imported("paper.yaml")[1]
    problems = settings["problem_configs"].values()
    for key in {key for each in problems for key in [*each, *each["optimizer_config"]]} - {
        "metrics_config",
        "optimizer_config",
    }:
        assert key in text, key
