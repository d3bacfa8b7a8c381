"""Arrays of validations and the moving average of the loss, compared with scipy, numpy and the published tables."""

from itertools import chain

import numpy as np
import pandas as pd
import pytest
from helpers.observed_training import watched
from helpers.synthetic_store import handmade
from helpers.training_here import simulate
from helpers.training_process import StopAfter
from scipy.spatial.distance import cdist

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.callback import Callback
from nnlo_lib.train.publish import publish_training
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task
from nnlo_lib.train.trainer import Trainer

NODES = {"algorithm": {"name": "dsgd"}, "topology": {"name": "cycle"}}
SGD = {
    "train": {"optimizer": {"name": "sgd", "lr": 0.05}},
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
}


class Spy(Callback):
    """Keeps the parameters after each epoch, and the loss of each mini-batch, of one rank."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._before = trainer, np.zeros(2)
        self.thetas: list[np.ndarray] = []
        self.losses: list[list[float]] = [[]]

    def end(self, part: str) -> None:
        if part != "step":
            return
        now = self._trainer.state.metric_sums[:2].numpy().copy()
        samples, loss = now - self._before
        self._before = now
        self.losses[-1].append(loss / samples)

    def on(self, event: str) -> None:
        if event != "epoch":
            return
        self.thetas.append(self._trainer.context.replica.theta.detach().double().numpy().copy())
        self.losses.append([])
        self._before = np.zeros(2)


def spied(task) -> list[Spy]:
    """Train and publish; return what each rank has done."""

    def rank(comm):
        trainer = Trainer(RankContext(task, comm), StopFlag())
        spy = Spy(trainer)
        trainer.callbacks.append(spy)
        assert trainer.run()
        trainer.close()
        publish_training(trainer, "2026-01-01T00:00:00+00:00", "2026-01-01T00:01:00+00:00")
        return spy

    return SimulatedWorld(task.run.parallel.ranks, task.run.parallel.simulation, 0).run(rank)


ALL = {"consensus_matrix": True, "sample_metrics": True, "loss_average": 0.8}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, small_store):
    """Return the run of four nodes with their own models, and what they did."""
    task = watched(tmp_path_factory.mktemp("nodes"), small_store, ALL, ranks=4, **NODES, **SGD)
    return FinishedRun(task.folder), spied(task)


def test_distances_are_those_of_scipy(nodes):
    run, spies = nodes
    assert len(run.consensus) == 2 * len(run.history)
    for epoch, step in enumerate(run.history["step"]):
        thetas = np.stack([spy.thetas[epoch] for spy in spies])
        unit = thetas / np.linalg.norm(thetas, axis=1, keepdims=True)
        np.testing.assert_allclose(run.consensus[f"distance_{step}"], cdist(thetas, thetas), rtol=1e-12)
        np.testing.assert_allclose(run.consensus[f"normalized_{step}"], cdist(unit, unit), rtol=1e-9)
        # The history has the mean distance to the mean; a distance of two nodes is at most the sum of theirs.
        to_mean = np.linalg.norm(thetas - thetas.mean(0), axis=1)
        assert run.history["consensus_error"][epoch] == pytest.approx(to_mean.mean(), rel=1e-5)


def test_metrics_of_samples_have_the_means_of_each_node(nodes):
    run, _ = nodes
    with np.load(run.paths.validation_metrics) as found:
        table, samples = pd.read_csv(run.paths.nodes), found["samples"]
        assert sorted(set(samples)) == list(samples)
        for step, (_, rows) in zip(run.history["step"], table.groupby("epoch"), strict=True):
            for metric in ("loss", "accuracy"):
                values = found[f"{metric}_{step}"]
                assert values.shape == (4, len(samples))
                np.testing.assert_allclose(values.astype(float).mean(1), rows[metric], rtol=1e-5)
            assert set(np.unique(found[f"accuracy_{step}"])) <= {0, 1}


def test_a_common_model_has_one_row_of_samples(tmp_path, small_store):
    task = simulate(watched(tmp_path / "equal", small_store, {"sample_metrics": True}, ranks=2, **SGD))
    run = FinishedRun(task.folder)
    with np.load(run.paths.validation_metrics) as found:
        for step, loss in zip(run.history["step"], run.history["val_loss"], strict=True):
            assert found[f"loss_{step}"].shape == (1, len(found["samples"]))
            assert found[f"loss_{step}"].mean() == pytest.approx(loss, rel=1e-5)
    assert run.summary["outputs"].keys() >= {"validation_metrics.npz"}


def test_average_of_the_loss_is_that_of_pandas(nodes):
    run, spies = nodes
    for epoch in range(len(run.history)):
        losses = [pd.Series([*chain(*spy.losses[: epoch + 1])]) for spy in spies]
        wanted = [each.ewm(alpha=0.2, adjust=False).mean().iloc[-1] for each in losses]
        assert run.history["train_loss_average"][epoch] == pytest.approx(np.mean(wanted), rel=1e-6)


def test_results_have_the_same_bits_with_and_without(tmp_path, small_store, nodes):
    run, _ = nodes
    plain = simulate(watched(tmp_path / "plain", small_store, {}, ranks=4, **NODES, **SGD))
    without = FinishedRun(plain.folder)
    assert without.paths.model.read_bytes() == run.paths.model.read_bytes()
    assert without.summary["config_hash"] == run.summary["config_hash"]
    pd.testing.assert_frame_equal(without.history, run.history.drop(columns="train_loss_average"))
    assert not without.paths.consensus.exists()


def test_a_restart_repeats_the_arrays_and_continues_the_average(tmp_path, small_store, nodes):
    run, _ = nodes
    task = watched(tmp_path / "stopped", small_store, ALL, ranks=4, **NODES, **SGD)
    assert not train_simulated(task, StopAfter(14))
    # A later step of an attempt that was taken back; it must not be published.
    (task.observe_folder / "consensus-999.npz").write_bytes(b"damaged")
    simulate(task)
    for name in ("consensus.npz", "validation_metrics.npz"):
        assert (task.folder / name).read_bytes() == (run.folder / name).read_bytes()
    again = FinishedRun(task.folder).history["train_loss_average"]
    pd.testing.assert_series_equal(again, run.history["train_loss_average"])


def test_a_column_that_starts_at_a_restart_is_empty_before(tmp_path, small_store):
    folder = tmp_path / "later"
    assert not train_simulated(watched(folder, small_store, {}, **SGD), StopAfter(12))
    simulate(watched(folder, small_store, {"loss_average": 0.5}, **SGD))
    run = FinishedRun(folder)
    assert run.history["train_loss_average"].isna().tolist() == [True, False, False]
    assert run.history["epoch"].tolist() == [1, 2, 3]


GAN = "problem: {name: gan, weight_clip: 0.01}\nmodel: {name: wgan}"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("observe: {consensus_matrix: true}", "observe.consensus_matrix: allreduce has one common model"),
        ("observe: {sample_metrics: true}\ndata: {validation: 0}", "the run has no validation samples"),
        (f"observe: {{sample_metrics: true}}\n{GAN}", "no metrics of single samples"),
        ("observe: {loss_average: 1}", "observe.loss_average"),
    ],
)
def test_requests_without_an_effect_are_refused(tmp_path, settings, said):
    (tmp_path / "x.yaml").write_text(f"name: x\n{settings}\n")
    with pytest.raises(UserError, match=said):
        load_experiment(tmp_path / "x.yaml")


@pytest.mark.parametrize("is_grid", [True, False])
def test_points_of_a_plan_have_any_order_and_places(tmp_path, is_grid):
    """A store of a user's own reader; points that are no grid are counted in cells."""
    draw = np.random.default_rng(0)
    rows, columns = np.mgrid[-1:1:9j, -1:1:13j]
    plane = np.stack([columns, rows], -1).reshape(-1, 2) + (0 if is_grid else draw.normal(0, 0.01, (117, 2)))
    points = draw.permutation(plane).astype(np.float32)
    splits = {name: (points, (points[:, 0] > 0.1).astype(np.float32)) for name in ("train", "test", "plan")}
    handmade(tmp_path / "store", splits, dataset="lidar")
    settings = {
        "problem": "regression", "loss": "binary_cross_entropy", "metrics": ["binary_accuracy"],
        "data": {"dataset": "lidar", "validation": 0.2},
        "model": {"name": "fourier", "args": {"hidden": [4]}}, "observe": {"maps": True},
        "train": {"epochs": 1, "batch_size": 20}, "parallel": {"ranks": 2, "transport": "simulated"},
        "algorithm": {"name": "dsgd"},
    }  # fmt: skip
    run = Experiment.model_validate(settings)
    job = Task("t", "t", run, 0, None, 1, tmp_path / "store/manifest.json", tmp_path / "results")
    job.observe_folder.mkdir(parents=True)
    (job.observe_folder / "maps-0.npz").write_text("a damaged file of an earlier validation")
    simulate(job)
    with np.load(tmp_path / "results/maps.npz") as found:
        (plan,) = (found[name] for name in found.files if name.startswith("plan"))
    expected = np.broadcast_to(columns[0] > 0.1, (9, 13))
    if is_grid:
        np.testing.assert_array_equal(plan, expected)
    else:
        assert max(plan.shape) == 64
        assert np.nanmean(plan) == pytest.approx(expected.mean(), abs=0.01)
