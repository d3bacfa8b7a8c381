"""Errors in a `search:` section are reported before any training starts."""

import re
import textwrap

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Return a function that loads a file and returns the experiment, or its error lines without the file name."""
    monkeypatch.chdir(tmp_path)

    def tried(text, changes=()):
        (tmp_path / "mine.yaml").write_text(textwrap.dedent(text))
        try:
            return load_experiment("mine.yaml", changes)
        except UserError as error:
            return [line.strip().removeprefix("mine.yaml:") for line in str(error).splitlines()[1:]]

    return tried


def space(*lines, more=""):
    return "search:\n  space:\n" + "".join(f"    {line}\n" for line in lines) + more


MISTAKES = {
    "no such key": ("train.lr: [1, 2]", "train.lr: unknown key 'train.lr'; did you mean train.optimizer.lr?"),
    "misspelt": ("train.optimizer.momentom: [0.1]", "did you mean train.optimizer.momentum?"),
    "nothing like it": ("xyz: [1]", "xyz: unknown key 'xyz'; docs/reference/experiment.md lists all keys"),
    "seeds": ("seeds: [1, 2]", "seeds: cannot be searched: 'seeds' belongs to the experiment"),
    "name": ("name: [a, b]", "name: cannot be searched"),
    "search itself": ("search.trials: [1, 2]", "search.trials: cannot be searched"),
    "data set": ("data.dataset: [digits, mnist]", "all trials share one copy"),
    "lower end": ("train.batch_size: {integer: [0, 8]}", "train.batch_size: 0: should be greater than or equal to 1"),
    "upper end": ("data.validation: {uniform: [0.1, 1.5]}", "data.validation: 1.5: should be less than 1"),
    "wrong kind of value": ("train.batch_size: {uniform: [1, 8]}", "train.batch_size: "),
    "a choice": ("algorithm.name: [allreduce, averge]", "'averge': unknown name 'averge'; did you mean 'average'?"),
    "a block": ("train.optimizer: [sgd]", "'sgd': must be a section of keys"),
    "below a value": ("train.epochs.x: [1]", "unknown key 'train.epochs.x'"),
    "more epochs than there are": ("train.epochs: {integer: [1, 11]}", "11 exceeds train.epochs (10)"),
    "no such kind": ("train.batch_size: {integr: [1, 8]}", "train.batch_size.integr: unknown key 'integr'; did you mean 'integer'?"),
    "ends in the wrong order": ("train.batch_size: {integer: [8, 1]}", "the lower bound 8 is not below the upper bound 1"),
    "of the base's algorithm alone": ("algorithm.sync_every: [1, 2]", "1: unknown key 'sync_every'; known: bucket_mb"),
    "graph that no algorithm uses": ("topology.name: [complete, cycle]", "allreduce does not use a graph"),
    "condition on what is not searched": ("train.batch_size: {choice: [1], when: {a: 1}}", "'a' is not searched"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "said"), MISTAKES.values(), ids=MISTAKES)
def test_one_mistake(check, line, said):
    (told,) = check(space(line))
    assert re.match(r"[23]: search\.space", told)
    assert said in told


SIZES = "train.batch_size: [8, 9]"


def rungs(fidelity):
    return space(SIZES, more=f"  fidelity: {{{fidelity}}}\n") + "train: {epochs: 3}\n"


def objective(setting):
    return space(SIZES, more=f"  objective: {{{setting}}}\n")


COMBINATIONS = {
    "key of some algorithms": (
        space("algorithm.name: [allreduce, average, diloco]", "algorithm.sync_every: [1, 2]"),
        r"4: search.space.algorithm.sync_every: unknown key 'sync_every'.*add the condition `when: {algorithm.name: \[average, diloco\]}`",
    ),
    "values that exclude each other": (
        space("algorithm.name: [allreduce, easgd]", SIZES, "parallel.ranks: [1, 3]"),
        "5: search.space.parallel.ranks: 1: with algorithm.name = easgd: easgd requires at least 2(?!.*batch_size)",
    ),
    "fixed key": (
        "parallel: {ranks: 3}\ntrain: {schedule: {name: plateau}}\n" + space("algorithm.name: [allreduce, downpour]"),
        "5: search.space.algorithm.name: 'downpour': ",
    ),
    "metric misspelt": (objective("metric: val_los"), ".*metric: 'val_los' is not measured; did you mean 'val_loss'"),
    "metric absent": (objective("metric: val_top5_accuracy"), ".*'val_top5_accuracy' is not measured"),
    "direction": (objective("metric: bytes"), ".*direction: required for bytes; set minimize or maximize"),
    "other weights": (
        objective("epoch: last") + "train: {restore_best: val_loss}\n",
        ".*epoch: last judges the weights of the last epoch, but train.restore_best publishes those of the best one",
    ),
    "searched weights": (
        space("train.restore_best: [null, val_loss]", more="  objective: {epoch: last}\n"), ".*epoch: last judges"
    ),
    "start": (
        space(SIZES, more="  start: [{train.batch_size: 7}]\n"),
        r".*search.start: train.batch_size: 7 is outside of choice \(8, 9\)",
    ),
    "known": (space(SIZES, more="  known: none.csv\n"), ".*search.known: none.csv cannot be read"),
    "no validation": (space(SIZES) + "data: {validation: 0}\n", ".*'val_loss' needs validation samples"),
    "asha": (rungs("name: asha, first: 3"), r".*needs a rung below train.epochs \(3\)"),
    "hyperband": (rungs("name: hyperband, first: 4"), r".*needs a rung below train.epochs \(3\)"),
    "median": (rungs("name: median, grace: 3"), r".*needs a rung below train.epochs \(3\)"),
    "epochs beside rungs": (
        space("train.epochs: [1, 2]", more="  fidelity: {name: asha}\n"), ".*asha sets the epochs of each trial"
    ),
    "nothing to search": ("search: {trials: 3}\n", "1: search.space: no key to search"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), COMBINATIONS.values(), ids=COMBINATIONS)
def test_a_combination_that_cannot_be_searched(check, text, words):
    told = check(text)
    assert re.match(words, told[0])
    assert len(told) == 1 or "validation" in words


@pytest.mark.parametrize(
    ("base", "key"),
    [
        ("", "loss: [cross_entropy, hinge]"),
        ("", "problem.label_smoothing: [0, 0.1]"),
        ("problem: regression\nloss: huber\n", "problem.huber_delta: [1, 2]"),
        ("problem: {name: gan, gradient_penalty: 10}\nmodel: {name: wgan}\n", "train.batch_size: [8, 9]"),
    ],
)
def test_losses_with_different_meanings_cannot_rank_trials(check, base, key):
    (told,) = check(base + space(key))
    assert "cannot rank trials; set another metric, such as val_" in told
    other = told.rpartition(" ")[2]
    assert check(base + space(key, more=f"  objective: {{metric: {other}, direction: minimize}}\n")).search


@pytest.mark.parametrize("metric", ["train_loss", "val_accuracy", "val_top5_accuracy"])
def test_metrics_that_are_measured(check, metric):
    text = space("train.batch_size: [8, 9]", more=f"  objective: {{metric: {metric}}}\n")
    assert check(text + "metrics: [accuracy, top5_accuracy]\n").search.objective.metric == metric


def test_folds_need_no_validation_samples(check):
    text = space(SIZES) + "data: {validation: 0}\ntrain: {epochs: 3}\n"
    assert check(text, ["search.folds.k=2"]).search.folds.k == 2


def test_a_space_on_the_command_line_over_algorithms(check):
    space = "{algorithm.name: [allreduce, average, easgd], train.optimizer.lr: {log_uniform: [1e-3, 1]}}"
    sync = "{choice: [1, 2], when: {algorithm.name: [average, easgd]}}"
    made = check("name: x\n", [f"search.space={space}", f"search.space.algorithm.sync_every={sync}"])
    assert made.search.space["train.optimizer.lr"].log_uniform == (1e-3, 1)
    assert set(made.search.space) == {"algorithm.name", "algorithm.sync_every", "train.optimizer.lr"}


NNLO = """\
from skopt.space import Categorical, Integer, Real

def get_model(shape, classes, nb_filters=10, dropout=0.5, act="relu", rate=0.1, units=8):
    raise AssertionError("not called")

get_model.parameter_range = [
    Integer(10, 50, name="nb_filters"),
    Real(0.0, 1.0, name="dropout"),
    Categorical(["relu", "tanh"], name="act"),
    Real(1e-4, 1e-1, "log-uniform", name="rate"),
    Integer(2, 64, prior="log-uniform", name="units"),
]
"""


def test_the_range_at_a_models_function_is_searched(check, tmp_path):
    (tmp_path / "net.py").write_text(NNLO)
    made = check(space("model.args.dropout: {uniform: [0.2, 0.4]}") + "model: {name: net.py:get_model}\n")
    assert {key: each.model_dump() for key, each in made.search.space.items()} == {
        "model.args.nb_filters": {"integer": (10, 50)},
        "model.args.dropout": {"uniform": (0.2, 0.4)},
        "model.args.act": {"choice": ("relu", "tanh")},
        "model.args.rate": {"log_uniform": (1e-4, 1e-1)},
        "model.args.units": {"log_integer": (2, 64)},
    }
    assert len(check("search: {}\nmodel: {name: net.py:get_model}\n").search.space) == 5


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("Integer(1, 2)", "has no name"),
        ("(1, 2)", "is not a scikit-optimize dimension"),
        ("Real(1, 2, name='x', prior='normal')", "cannot be loaded: net.py:3 in <module>: ValueError"),
    ],
)
def test_a_range_that_cannot_be_understood(check, tmp_path, listed, said, capsys):
    text = f"from skopt.space import Integer, Real\ndef f(): pass\nf.parameter_range = [{listed}]\n"
    (tmp_path / "net.py").write_text(text)
    (tmp_path / "mine.yaml").write_text("search: {}\nmodel: {name: net.py:f}\n")
    with pytest.raises(UserError, match=r"net.py:f.*" + re.escape(said)):
        load_experiment("mine.yaml")


def test_a_list_is_searched_only_for_a_key_whose_value_is_a_list(check):
    found = check(space("model.args.hidden_layers: [[64, 64], [128], 3]", "metrics: {constant: [accuracy]}"))
    assert found.search.space["model.args.hidden_layers"].choice == ([64, 64], [128], 3)
    assert found.search.space["metrics"].constant == ["accuracy"]
    (told,) = check(space("train.batch_size: [[8], 16]"))
    assert told == "3: search.space.train.batch_size: [8]: should be a valid integer (this is [8])"
