"""Progress lines that the terminal shows during a search, and its summary at the end."""

import re

import pytest
from helpers.synthetic_search import MadeUp

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.progress import ProgressLogger
from nnlo_lib.report.page import _unlike_asked, print_outcome, report_outcome
from nnlo_lib.search.study.storage import load_study
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.search.study.trial_summary import error_signature
from nnlo_lib.state.attempts import Attempt, append_attempt


class Script:
    """Executor that runs the next prepared function at each wait."""

    def __init__(self, *acts):
        self.acts, self.started = list(acts), []

    def start(self, fold_task):
        self.started.append(fold_task)

    def wait(self):
        self.acts.pop(0)()
        return bool(self.acts)


class Reread:
    """Study that is read from its folder, to which the test adds trials."""

    def __init__(self, folder):
        self.folder = folder
        self.refresh()

    def refresh(self):
        self.known = load_study(self.folder).snapshot

    def snapshot(self):
        return self.known


@pytest.fixture
def search(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda **settings: MadeUp(tmp_path, **settings)


def lines(capsys):
    return re.sub(r"[\d.e-]+ s$", "T", capsys.readouterr().err, flags=re.MULTILINE).splitlines()


def test_a_line_for_each_trial_as_it_ends(search, capsys):
    made = search(folds={"k": 2}, objective={"epoch": "last"}).trial(worth=[5.0, 5.0])
    told = ProgressLogger(
        Script(
            lambda: made.trial(worth=[0.25, 0.75]),
            lambda: made.trial(status="failed", error="out of memory " * 20),
            lambda: made.trial(done=False),
        ),
        Reread(made.folder),
    )
    told.start(FoldTask(1, 0, 9))
    assert (told.wait(), told.wait(), told.wait()) == (True, True, False)
    good, bad = lines(capsys)
    assert re.fullmatch(
        r"nnlo: trial 1  val_loss 0.5\d* \+- 0.25  \(best 0.5\d*, trial 1\)  2/20, .* s, about .* left", good
    )
    assert bad.startswith("nnlo: trial 2 failed: out of memory out of memory")
    assert len(bad.partition(", about ")[0]) < 310


def test_a_line_for_each_rung(search, capsys):
    made = search(fidelity={"name": "asha"}, objective={"epoch": "last"})
    told = ProgressLogger(Script(lambda: made.trial(rungs=[1, 9], worth=[2.0])), Reread(made.folder))
    told.wait()
    first, last = lines(capsys)
    assert "trial 0 after epoch 1  val_loss 2.6065" in first  # 2 + exp(-1/2)
    assert "trial 0  val_loss 2.0111" in last  # 2 + exp(-9/2)


def test_the_outcome_names_the_best_trial_and_the_files(search, capsys):
    made = (
        search()
        .trial({"train.optimizer.lr": 0.01, "algorithm.name": "average"})
        .trial(status="failed", error="boom")
    )
    report_outcome(made.folder.relative_to(made.folder.parents[2]))
    best, rate, name, trials, table, page, following = capsys.readouterr().out.splitlines()
    assert best.startswith("best: trial 0 of 2  val_loss 0.1")
    assert rate.split() == ["train.optimizer.lr", "0.01"]
    assert name.split() == ["algorithm.name", "average"]
    assert trials.startswith("trials: 2, 1 failed; ")
    assert [line.split()[-1].rpartition("/")[2] for line in (table, page, following)] == [
        "trials.csv",
        "report.html",
        "best.yaml",
    ]
    for file in ("trials.csv", "report.html", "best.yaml"):
        assert (made.folder / file).stat().st_size > 100


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        *((reason, 1) for reason in ("killed", "peer lost", "out of memory")),
        *((reason, 0) for reason in ("code error", "diverged", "bad input", "user code")),
    ],
)
def test_a_search_that_lost_a_trial_does_not_end_well(reason, status, search, capsys):
    made = search().trial().trial(status="failed", error="no rank started")
    task = FoldTask(1, 0, 9)
    state = RunPaths(task.run_folder(made.folder)).state.folder
    state.mkdir(parents=True)
    append_attempt(state, Attempt(1, "", "", 60.0, "n", None, reason, None, 0, 0, 0, 1))
    assert report_outcome(made.folder) == print_outcome(made.folder) == status
    again = f"to train it again, delete {task.result_path(made.folder)} and run the same command"
    assert capsys.readouterr().out.count(f"lost:   trial 1, fold 0: no rank started; {again}") == 2 * status


SPACES = {
    "exhausted": (
        {"space": {"train.batch_size": [8, 16]}},
        "space:  exhausted after 2 trials (search.trials: 20)",
    ),
    "grid": (
        {"space": {"train.batch_size": {"integer": [8, 19]}}, "method": {"name": "grid"}, "trials": 2},
        "grid:   2 of 5 points are tried (search.trials: 2)",
    ),
}


@pytest.mark.parametrize(("settings", "line"), SPACES.values(), ids=SPACES)
def test_the_outcome_names_an_exhausted_space_and_a_grid_with_points_that_were_not_tried(
    search, capsys, settings, line
):
    made = search(**settings)
    for size in (8, 16):
        made.trial({"train.batch_size": size})
    report_outcome(made.folder)
    assert line in capsys.readouterr().out


def test_the_outcome_asks_about_keys_without_effect(search, capsys):
    """A model with `**args` swallows a misspelt name."""
    made = search(space={"model.args.hiden": {"integer": [4, 64]}})
    for width in (4, 8, 16):
        made.trial({"model.args.hiden": width}, worth=[0.5])
    report_outcome(made.folder)
    line = "equal:  3 points have the same value: model.args.hiden may have no effect; is a name misspelt?"
    assert line in capsys.readouterr().out
    question = "Question: 3 points have the same value: model.args.hiden may have no effect"
    assert question in (made.folder / "report.html").read_text()
    made.trial({"model.args.hiden": 32}, worth=[0.25])
    report_outcome(made.folder)
    assert "equal:" not in capsys.readouterr().out
    assert "Question:" not in (made.folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"trials": None, "budget": {"hours": 100}}, True),
        ({"trials": None, "objective": {"target": 1e-9}}, True),
        ({"trials": None, "budget": {"hours": 1e-6}}, False),
        ({"trials": None}, False),
        ({"trials": 20, "budget": {"hours": 100}}, False),
    ],
)
def test_the_outcome_names_a_budget_that_the_default_number_of_trials_leaves_unused(search, settings, told):
    made = search(**settings)
    for _ in range(20):
        made.trial()
    line = "ended:  after 20 trials, the default of search.trials; raise it to use the whole budget"
    assert (line in _unlike_asked(load_study(made.folder))) == told


def test_trials_that_failed_alike_are_counted_together(search):
    made = search().trial(status="failed", error="disk full")
    for hidden in (13, 14):
        error = f"KeyError: {hidden} is none (net.py:3); raised by the model net.py({{'hidden': {hidden}, 'a': {{}}}})"
        made.trial(status="failed", error=error)
    message = r"none of 3 trials has a valid result; 2 of them: KeyError: 13 is none"
    with pytest.raises(UserError, match=message):
        report_outcome(made.folder)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("12,345 parameters, and most is 10", "99 parameters, and most is 10", True),
        ("ValueError: no (net.py:3)", "ValueError: no (net.py:4)", False),
        ("loss is 1.5e-7", "loss is -2", True),
        ("KeyError: 'a'", "KeyError: 'b'", False),
    ],
)
def test_the_cause_of_a_failure_is_its_words_without_settings_and_figures(one, other, alike):
    assert (error_signature(one) == error_signature(other)) == alike
