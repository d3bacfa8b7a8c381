"""The report page of a search: searches of all shapes, and numbers computed by hand."""

import json
import re
from dataclasses import replace

import pytest
from helpers.html_page import HOSTILE, check
from helpers.nnlo_command import nnlo
from helpers.synthetic_search import MadeUp

from nnlo_lib.core.errors import UserError
from nnlo_lib.report.page import write_search_page
from nnlo_lib.report.search.importance import fit_forest
from nnlo_lib.report.search.section import best_page, cost_sentence, search_section
from nnlo_lib.report.search.study_data import StudyData, searched_parameters
from nnlo_lib.report.search.trial_charts import convergence_figure, learning_curve_figure
from nnlo_lib.report.sections.origin import search_page
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial, read_result, write_trial
from nnlo_lib.state.attempts import Attempt, append_attempt
from nnlo_lib.state.finished_run import SUMMARY_KEYS


@pytest.fixture
def search(tmp_path):
    return lambda **settings: MadeUp(tmp_path, **settings)


@pytest.fixture
def page(tmp_path):
    def made(search):
        write_search_page(tmp_path / "report.html", search.folder)
        return tmp_path / "report.html"

    return made


def trials(*given, **settings):
    """Return a function that fills a search with trials, each by the arguments of MadeUp.trial."""

    def fill(search):
        made = search(**settings)
        for each in given:
            made.trial(**each)
        return made

    return fill


RATE, SIZE = "train.optimizer.lr", "train.batch_size"
LAYERS = [[64, 64], [128], {"units": 3}]
KEYS = [f"model.args.a{number}" for number in range(20)]
FAILED, NOT_DONE = {"status": "failed", "error": "boom"}, {"done": False}
SHAPES = {
    "one": trials({}),
    "one of many came to something": trials({}, *[{"status": "failed", "error": HOSTILE}] * 6),
    "none came to anything": trials(FAILED, NOT_DONE),
    "nothing yet": trials(),
    "categories": trials(
        *({"point": {"model.args.layers": LAYERS[number % 3], "data.stratify": number % 2 == 0}, "worth": [0.1 * number]}
          for number in range(12)),
        space={"model.args.layers": {"choice": LAYERS}, "data.stratify": {"choice": [True, False]}},
    ),
    "conditional": trials(*[{}] * 15, folds={"k": 2}),
    "key of failed trials only": trials(
        *[{}] * 15, *({"point": {"train.optimizer.momentum": rate, RATE: 0.01}, **FAILED} for rate in (0.1, 0.2)),
        folds={"k": 2},
    ),
    "rungs": trials(
        *({"rungs": [1, 3, 9][: 1 + (number % 3 == 0) + (number % 9 == 0)]} for number in range(20)),
        fidelity={"name": "asha"},
    ),
    "all alike": trials(*[{"point": {RATE: 0.01}, "worth": [0.5]}] * 10),
    "diverged": trials(*({"worth": [10.0**number]} for number in range(10))),
    "many keys": trials(
        *({"point": {key: ((7 * number + place) % 13) / 13 for place, key in enumerate(KEYS)}, "worth": [number / 12]}
          for number in range(12)),
        space={key: {"uniform": [0, 1]} for key in KEYS}, objective={"metric": "val_accuracy"},
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shape", SHAPES)
def test_searches_of_all_shapes(search, page, shape):
    made = SHAPES[shape](search)
    written = page(made)
    text, first = check(written).text, written.read_bytes()
    assert "nan" not in re.sub(r"\w*(?<=[a-z])nan|nan(?=[a-z])\w*", "", text)
    if shape == "conditional":
        assert page(made).read_bytes() == first


def test_hostile_words_are_only_text(search, page):
    made = search(space={f"model.args.{HOSTILE}": {"choice": [HOSTILE, "b"]}})
    for number in range(8):
        made.trial({f"model.args.{HOSTILE}": HOSTILE if number % 2 else "b"})
    made.trial(status="failed", error=HOSTILE)
    assert check(page(made)).text.count(HOSTILE) > 3


def fitted_forest(made):
    data = StudyData.load(made.folder)
    return fit_forest(data, searched_parameters(data, data.ranked_rows))


def test_the_key_that_matters_is_found(search):
    """The learning rate is ranked first: the synthetic objective is a parabola of its logarithm, lowest at 0.01."""
    fitted = fitted_forest(trials(*[{}] * 60)(search))
    key, share = fitted.importances[0]
    assert (key.name, share > 0.5, fitted.r_squared > 0.5) == (RATE, True, True)
    assert sum(each for _, each in fitted.importances) <= fitted.r_squared <= 1


def test_noise_has_no_importance(search):
    made = trials(*({"worth": [1 + ((number * 7919) % 31) / 31]} for number in range(30)))(search)
    found = search_section(made.folder)
    assert "less than 20%: importances are not shown" in found["how"]
    assert found["effects"] is None


def test_importances_add_up_to_what_the_forest_explains(search):
    """The objective is half the learning rate's and half noise: no key has a share near 100 %."""
    made = search(space={RATE: {"uniform": [0, 1]}, SIZE: {"integer": [1, 64]}})
    for number in range(40):
        rate, noise = (number * 7 % 40) / 40, ((number * 7919) % 41) / 41
        made.trial({RATE: rate, SIZE: 1 + number % 64}, worth=[1 + rate + noise])
    fitted = fitted_forest(made)
    key, share = fitted.importances[0]
    assert key.name == "train.optimizer.lr"
    assert 0.2 < fitted.r_squared < 0.8
    assert share <= fitted.r_squared
    assert f"explains {fitted.r_squared:.0%} of the variance" in search_section(made.folder)["how"]


def test_every_trial_with_an_objective_is_drawn(search):
    """Of nine trials, two have one epoch and were stopped, one has failed, and one has no result yet."""
    made = search(fidelity={"name": "asha"})
    for rungs in ([1, 3, 9], [1, 3], [1], [1], [1, 3], [1, 3, 9], [1, 3]):
        made.trial(rungs=rungs)
    made.trial(status="failed", error="boom").trial(done=False)
    chart = learning_curve_figure(StudyData.load(made.folder))
    lines, marks = chart.spec["layer"][0]["data"]["columns"], chart.spec["data"]["columns"]
    with_line = {trial for trial in lines["trial"] if lines["trial"].count(trial) > 1}
    assert with_line | set(marks["trial"]) == set(range(7))
    assert "7 of 9 trials; without an objective: 1 failed and 1 running" in chart.note
    assert search_section(made.folder)["single_epoch"] == 2


def test_a_finished_trial_of_one_epoch_is_a_mark(search):
    chart = learning_curve_figure(StudyData.load(search(epochs=1).trial().trial().folder))
    assert sorted(chart.spec["data"]["columns"]["state"]) == ["best", "done"]
    assert chart.note.endswith("2 trials")


def test_the_best_so_far_never_gets_worse(search):
    made = trials(*[{}] * 20, objective={"metric": "val_accuracy"})(search)
    chart = convergence_figure(StudyData.load(made.folder))
    heights = [value for _, value in steps_of(chart)]
    # The axis of an accuracy is drawn by its distance to 1.
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] == min(chart.spec["data"]["columns"]["y"])


def rungs_of(made, number, *rungs):
    """Write a trial that uses 4 cores; each rung is (epochs, start, end, value)."""
    tasks = [FoldTask(number, 0, epochs) for epochs, *_ in rungs]
    decisions = tuple(SchedulingDecision(10 * number + i, task, ()) for i, task in enumerate(tasks))
    write_trial(made.folder, Trial(number, {"train.optimizer.lr": 0.01 + number}, decisions))
    for task, (epochs, start, end, value) in zip(tasks, rungs, strict=True):
        rows = tuple({"epoch": e, "seconds": 1.0, "val_loss": value} for e in range(1, epochs + 1))
        Result(task, "finished", rows, started=3600 * start, ended=3600 * end, cores=4).write(made.folder)


def steps_of(chart):
    """Return (place, value) of each step of the line of the best objective; the last repeats the one before it."""
    line = chart.spec["layer"][0]["data"]["columns"]
    return list(zip(line["x"], line["y"], strict=True))[:-1]


@pytest.mark.parametrize("epoch", ["best", "last"])
def test_the_best_so_far_compares_rungs_as_the_search_does(search, epoch, monkeypatch):
    """Trial 1 is better at its low rung, which counts only for `best`."""
    made = search(objective={"epoch": epoch}, fidelity={"name": "asha", "first": 3})
    monkeypatch.setattr("nnlo_lib.search.study.trial.decisions_in_order", lambda trials: [])
    rungs_of(made, 0, (3, 0, 1, 0.9), (9, 4, 6, 0.5))
    rungs_of(made, 1, (3, 1, 2, 0.2))
    rungs_of(made, 2, (3, 2, 3, 0.8), (9, 3, 4, 0.6))
    data = StudyData.load(made.folder)
    lowest = [(0, 0.5), (1, 0.2), (2, 0.2)] if epoch == "best" else [(0, 0.5), (2, 0.5)]
    assert steps_of(convergence_figure(data)) == lowest


def fold_task(made, number, start, end):
    where = FoldTask(number, 0, 9)
    decision = SchedulingDecision(number, where, ())
    write_trial(made.folder, Trial(number, {RATE: 0.01 + number}, (decision,)))
    rows = tuple({"epoch": e, "seconds": e * (end - start) / 10, "val_loss": 1.0} for e in range(1, 10))
    Result(where, "finished", rows, started=start, ended=end, cores=4).write(made.folder)


def cost(made):
    return cost_sentence(StudyData.load(made.folder)).replace("\u00a0", " ")


def test_a_search_links_to_the_page_of_its_best_run_and_back(tmp_path):
    found, best = MadeUp(tmp_path).trial().folder, tmp_path / "results/made-best/report.html"
    best.parent.mkdir()
    data = StudyData.load(found)
    assert (best_page(data, found), best_page(data, found.parent)) == ("", "#comparison")
    assert search_page(best) == ""
    best.write_text(""), (found / "report.html").write_text("")
    assert best_page(data, found) == "../../made-best/report.html"
    assert search_page(best) == "../made/search/report.html"
    assert search_page(found.parent / "report.html") == ""


def test_the_cost_by_hand(search):
    """Two workers train 10 s and 6 s in parallel, then 4 s after an idle pause of 1000 s, which does not count.

    The first was preempted after 3 s, and resumed 200 s later: its 13 s need 4 cores, too.
    """
    made = search(parallel=2)
    fold_task(made, 0, 0.0, 10.0), fold_task(made, 1, 0.0, 6.0), fold_task(made, 2, 1010.0, 1014.0)
    said = cost(made)
    assert said.startswith("3 fold tasks took 80.0 core seconds in 14.0 s without pauses")
    assert (
        "1.4 ran at a time. They spent 90.0% of their time in epochs" in said
    )  # the history has 9 of 10 epochs
    result = read_result(made.folder, FoldTask(0, 0, 9))
    replace(result, interrupted=3.0, earlier=((-203.0, -200.0),)).write(made.folder)
    assert cost(made).startswith("3 fold tasks took 92.0 core seconds in 17.0 s without pauses")


def test_failures_are_counted_by_reason(search):
    made = search().trial().trial(status="failed", error="a").trial(status="unwanted", error="b")
    made.trial(status="failed", error="a")
    for figure in (1, 2):
        made.trial(status="failed", error=f"c is {figure} in {{'a': {figure}}}")
    found = search_section(made.folder)["failures"]
    assert [tuple(each.values()) for each in found] == [
        ("a", "failed", 2, "1, 3"), ("c is 1 in {'a': 1}", "failed", 2, "4, 5"), ("b", "unwanted", 1, "2"),
    ]  # fmt: skip


def attempt(made, trial, host):
    """Record an attempt at the only fold of a trial; return the run folder."""
    folder, time_of = FoldTask(trial, 0, 9).run_folder(made.folder), "2026-01-02T03:04:05+00:00"
    (folder / "state").mkdir(parents=True)
    ended = Attempt(1, time_of, time_of, 1.0, host, None, "finished", None, 0, 9, 9, 1)
    append_attempt(folder / "state", ended)
    return folder


def summarize(folder, host, cores):
    """Write a summary that records the hardware of `host`, with `cores` cores that the training may use."""
    hardware = {"cpu": "Processor X", "cores": 2 * cores, "cores_available": cores, "ranks": 1, "threads": 4}
    hardware |= {"memory_bytes": 64e9, "gpus": ["H200"]}
    summary = dict.fromkeys(SUMMARY_KEYS, 1) | {"hardware": {host: hardware}}
    (folder / "summary.json").write_text(json.dumps(summary))


def test_hosts_of_the_fold_tasks_are_described(search, page):
    """The summary of one of three trainings is there."""
    made = search()
    for trial, host in enumerate(("n1", "n1", "n2")):
        made.trial()
        folder = attempt(made, trial, host)
    summarize(folder, "n2", 4)
    text = check(page(made)).text.replace("\u00a0", " ")
    assert "n2: Processor X, 4 threads of 1 rank on 4 of 8 cores, 64.0 GB memory, 1 × H200." in text


def test_a_folder_without_a_search_is_named(tmp_path):
    with pytest.raises(UserError, match="is not the folder of a search"):
        search_section(tmp_path)


def test_the_command_writes_the_page_of_a_search_alone_and_beside_runs(search, fake):
    made, alone, both = str(search().trial().folder), fake.root / "search.html", fake.root / "report.html"
    summary, jobs = str(fake.root / "summary.csv"), list(map(str, fake.quickstart().folders))
    nnlo("task", "aggregate", "--output", summary, *jobs)
    files = ("--experiment-file", str(fake.file), "--summary", summary)
    for page, given in ((alone, ()), (both, (*files, *jobs))):
        done = nnlo("task", "report", "--output", str(page), "--search", made, *given)
        assert (done.returncode or 0, done.stderr) == (0, "")
        assert "Hyperparameter search" in check(page).text
    assert "misclassified, most often" in check(both).text
    assert nnlo("task", "report", "--output", str(fake.root / "x.html")).returncode == 2


def test_a_page_of_more_trials_than_are_drawn_says_so_and_has_the_best_in_its_table(search, monkeypatch):
    for module in ("study_data", "trial_tables"):
        monkeypatch.setattr(f"nnlo_lib.report.search.{module}.MAX_DRAWN", 4)
    made = search(epochs=1)
    for value in (5.0, 1.0, 4.0, 3.0, 2.0, 6.0):
        made.trial(worth=[value])
    section = search_section(made.trial(status="failed", error="boom").folder)
    assert section["coverage"] == (
        "4 of 7 trials; evenly spaced from the best to the worst; without an objective: 1 failed"
    )
    assert [int(row[0]) for row in section["rows"]] == [1, 4, 3, 2]
    assert sorted(section["charts"][0].spec["data"]["columns"]["trial"]) == [1, 2, 3, 5]
