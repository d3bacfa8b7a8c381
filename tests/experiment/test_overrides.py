"""A `--set` without effect, because the runs override it, is refused with the option to use instead."""

import pytest
import yaml

from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment, reject_ineffective_overrides

FILE = {
    "runs": {"two": {"parallel": {"ranks": 2}}, "four": {"parallel": {"ranks": 4}}, "free": {"metrics": []}}
}


def given(tmp_path, names, *changes):
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(FILE))
    experiment = load_experiment(tmp_path / "t.yaml", changes)
    reject_ineffective_overrides(experiment, names, changes)
    return [experiment.variants[name] for name in names]


@pytest.mark.parametrize("change", ["parallel.ranks=8", "parallel={ranks: 8}"])
def test_what_all_runs_override(tmp_path, change):
    with pytest.raises(UserError) as error:
        given(tmp_path, ["two", "four"], change)
    assert str(error.value) == (
        f"--set {change} has no effect: runs.two.parallel.ranks is 2, runs.four.parallel.ranks is 4; "
        "use --set runs.two.parallel.ranks=8 --set runs.four.parallel.ranks=8"
    )


def test_what_is_told_works(tmp_path):
    (run,) = given(tmp_path, ["two"], "runs.two.parallel.ranks=8")
    assert run.parallel.ranks == 8


def test_what_some_run_takes_over(tmp_path):
    runs = given(tmp_path, ["two", "free"], "parallel.ranks=8", "train.epochs=3", "name=x", "seeds=[1, 2]")
    assert [(run.parallel.ranks, run.train.epochs) for run in runs] == [(2, 3), (8, 3)]


def test_what_a_run_says_as_well(tmp_path):
    assert given(tmp_path, ["four"], "parallel.ranks=4")[0].parallel.ranks == 4


def test_a_name_does_not_discard_what_is_set_beside_it(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("train: {optimizer: {name: sgd, momentum: 0.5}}\n")
    for changes in (
        ["train.optimizer.lr=0.3", "train.optimizer.name=adam"],
        ["train.optimizer.name=adam", "train.optimizer.lr=0.3"],
    ):
        optimizer = load_experiment(path, changes).train.optimizer
        assert (optimizer.name, optimizer.lr) == ("adam", 0.3)
