"""`nnlo export FOLDER --to optuna`: the study that Optuna reads has the trials of the search."""

import math

import pytest
from helpers.requires import optional
from helpers.synthetic_search import MadeUp

from nnlo_lib.cli import main
from nnlo_lib.core.errors import UserError
from nnlo_lib.report.search.importance import fit_forest
from nnlo_lib.report.search.study_data import StudyData, searched_parameters
from nnlo_lib.workflow.study_export import export_study

optuna = optional("optuna")
CategoricalDistribution = optuna.distributions.CategoricalDistribution
LOW = {"train.optimizer.lr": 0.01, "train.batch_size": 16, "algorithm.name": "allreduce"}


def loaded(path):
    return optuna.load_study(study_name=None, storage=f"sqlite:///{path}")


@pytest.fixture
def made(tmp_path):
    """Return a search whose trials finished, stopped at the first of two rungs, failed, are unwanted, or run."""
    made = MadeUp(tmp_path, fidelity={"name": "asha", "first": 3, "factor": 3}, folds={"k": 2})
    made.trial(LOW, rungs=[3, 9], worth=[0.1, 0.3]).trial(rungs=[3])
    made.trial(status="failed", error="diverged in epoch 2").trial(status="unwanted", error="too large")
    # A point that the user queued, beside the space; with a key that is active only here.
    made.trial(LOW | {"train.optimizer.lr": 0.5, "algorithm.name": "average", "algorithm.sync_every": 2})
    return made.trial(LOW, done=False)


def test_states_values_parameters_and_epochs(made, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["export", str(made.folder.parent), "--to", "optuna"])
    assert "6 trials" in capsys.readouterr().out
    study = loaded(made.folder / "optuna.db")
    assert (study.study_name, study.direction.name) == ("made", "MINIMIZE")
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "PRUNED", "FAIL", "FAIL", "COMPLETE", "RUNNING"]
    rows = StudyData.load(made.folder).rows
    for trial, row in zip(study.trials, rows, strict=True):
        assert trial.params == row.point
        assert trial.value == (row.objective if math.isfinite(row.objective) else None)
    assert study.best_trial.number == 0
    first = study.trials[0]
    assert first.intermediate_values == pytest.approx({e: 0.2 + math.exp(-e / 2) for e in range(1, 10)})
    assert first.user_attrs["folds"] == pytest.approx([each + math.exp(-4.5) for each in (0.1, 0.3)])
    assert study.trials[2].user_attrs["reason"] == "diverged in epoch 2"
    assert study.trials[4].distributions == {
        "train.optimizer.lr": optuna.distributions.FloatDistribution(1e-3, 0.5, log=True),
        "train.batch_size": optuna.distributions.IntDistribution(8, 64),
        "algorithm.name": CategoricalDistribution(["allreduce", "average"]),
        "algorithm.sync_every": CategoricalDistribution([1, 2, 5]),
    }


def test_values_that_optuna_does_not_have_are_texts(tmp_path):
    made = MadeUp(tmp_path, space={"model.args.hidden": {"choice": [[8], [8, 8], None]}, "train.seed": 3})
    made.trial({"model.args.hidden": [8, 8]}, worth=[0.1])
    export_study(made.folder, tmp_path / "a.db")
    (trial,) = loaded(tmp_path / "a.db").trials
    assert trial.params == {"model.args.hidden": "[8, 8]"}
    assert trial.distributions["model.args.hidden"].choices == ("[8]", "[8, 8]", None)


@pytest.mark.exhaustive
def test_the_evaluator_of_optuna_agrees_on_the_most_important_key(tmp_path):
    """The learning rate alone decides; Optuna's fANOVA leaves out the key that only some trials have."""
    made = MadeUp(tmp_path)
    for _ in range(24):
        made.trial()
    export_study(made.folder, tmp_path / "a.db")
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(loaded(tmp_path / "a.db"), evaluator=evaluator)
    data = StudyData.load(made.folder)
    forest = fit_forest(data, searched_parameters(data, data.rows))
    assert next(iter(found)) == forest.importances[0][0].name == "train.optimizer.lr"
    assert "algorithm.sync_every" not in found


@pytest.mark.parametrize(
    ("folder", "output", "said"),
    [("nothing", None, "is not the folder of a search"), ("", "a.txt", r"is \.db")],
)
def test_what_cannot_be_written_is_refused(made, folder, output, said):
    with pytest.raises(UserError, match=said):
        export_study(made.folder / folder, output and made.folder / output)
