"""User classes named by `path.py:Class`: reasons for refusal, and the line that the message names."""

import pytest

from nnlo_lib import UserError, load_experiment
from nnlo_lib.config import Run
from nnlo_lib.config.base import RECORDED_RUN_CONTEXT

FILE = """
from nnlo_lib import Algorithm, Capabilities, Compressor, Problem, Pruner

class Mine(Algorithm):
    capabilities = Capabilities(min_ranks=2, graph_properties=("connected",))
    def __init__(self, comm, period=1):
        super().__init__(comm)
    def on_gradient(self, replica, share):
        pass
    def before_evaluation(self, replica):
        pass

class Unnamed(Problem):
    def compute_loss(self, module, inputs, targets, step):
        pass
    def measure(self, module, inputs, targets):
        pass

class Measured(Problem):
    names = ("loss", "distance")
    def compute_loss(self, module, inputs, targets, step):
        pass
    def measure(self, module, inputs, targets):
        pass

def reader(folder, shard_size, file):
    pass

class Partial(Algorithm):
    def on_gradient(self, replica, share):
        pass

class Needing(Pruner):
    def __init__(self, epochs):
        pass
    def rungs(self, trial, epochs):
        return (epochs,)
    def promote(self, known):
        return None

NUMBER = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)


def section(**keys):
    return {"parallel": {"ranks": 2}, "algorithm": {"name": "mine.py:Mine", **keys}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (section(name="gone.py:Mine"), r"algorithm\.name: .*gone\.py"),
        (section(name="mine.py:Nothing"), r"algorithm\.name: mine\.py has no class 'Nothing'; known: Measured, Mine"),
        (section(name="mine.py:NUMBER"), r"algorithm\.name: mine\.py:NUMBER is not a subclass of .*Algorithm"),
        (section(name="mine.py:Measured"), r"algorithm\.name: mine\.py:Measured is not a subclass of .*Algorithm"),
        (section(args={"perod": 2}), r"algorithm\.args: mine\.py:Mine: .*'perod'"),
        (section(name="mine.py:Partial"), r"algorithm\.name: mine\.py:Partial does not define before_evaluation"),
        ({"search": {"space": {"train.optimizer.lr": [0.1, 1]}, "fidelity": {"name": "mine.py:Needing"}}}, r"search\.fidelity\.args: mine\.py:Needing: missing a required argument: 'epochs'"),
        (section(period=2), r"algorithm\.period: unknown key 'period'"),
        ({"algorithm": {"name": "mine.py:Mine"}, "parallel": {"ranks": 1}}, r"parallel\.ranks: mine\.py:Mine requires at least 2 ranks"),
        ({"problem": {"name": "mine.py:Unnamed"}}, r"problem\.name: mine\.py:Unnamed needs a class attribute names"),
        ({"problem": {"name": "mine.py:Measured"}, "metrics": ["mae"]}, r"metrics: mine\.py:Measured defines its loss and metrics"),
        ({"data": {"dataset": "own", "source": "x", "reader": {"name": "mine.py:reader"}}}, r"data\.reader\.args: mine\.py:reader: missing a required argument: 'file'"),
        ({"compression": {"name": "mine.py:Mine"}}, r"compression\.name: .*not a subclass of .*Compressor"),
    ],
)  # fmt: skip
def test_refused(mine, settings, message):
    with pytest.raises(UserError, match=message):
        load_experiment(settings)


def test_a_file_that_fails_is_named_with_its_line(mine, tmp_path):
    (tmp_path / "broken.py").write_text("x = 1\nraise KeyError('oops')\n")
    message = r"algorithm\.name: broken\.py cannot be loaded: .*broken\.py:2 in <module>: KeyError: 'oops'"
    with pytest.raises(UserError, match=message):
        load_experiment({"algorithm": {"name": "broken.py:A"}})


def test_an_edited_file_is_loaded_again(mine, tmp_path):
    assert load_experiment(section()).algorithm.capabilities.min_ranks == 2
    (tmp_path / "mine.py").write_text(FILE.replace("min_ranks=2", "min_ranks=1") + "\n# edited\n")
    assert load_experiment(section()).algorithm.capabilities.min_ranks == 1


def test_capabilities_name_and_metrics_come_from_the_class(mine):
    experiment = load_experiment(section() | {"problem": {"name": "mine.py:Measured"}})
    assert list(experiment.variants) == ["Mine"]
    assert experiment.measured == ("loss", "distance")
    assert experiment.algorithm.capabilities.graph_properties == ("connected",)


def test_a_past_run_is_read_without_its_file(mine, tmp_path):
    run = load_experiment(section() | {"problem": {"name": "mine.py:Measured"}}).variants["Mine"]
    recorded = run.model_dump(mode="json")
    assert Run.model_validate(recorded) == run
    (tmp_path / "mine.py").unlink()
    read = Run.model_validate(recorded, context=RECORDED_RUN_CONTEXT)
    assert (read.algorithm.name, read.measured) == ("mine.py:Mine", ("loss", "distance"))
