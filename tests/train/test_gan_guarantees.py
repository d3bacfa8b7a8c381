"""Bounds of a critic's weights and steps of the generator hold with every algorithm, or the check refuses them."""

from collections import Counter

import pytest
from helpers.observed_training import watched
from helpers.training_here import simulate
from pydantic import ValidationError
from safetensors.torch import load_file

from nnlo_lib.config import Run
from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.train.evaluation.evaluator import Evaluator
from nnlo_lib.train.optimizers.factory import NetworkOptimizer
from nnlo_lib.train.replica.replica import layout_of_prefix
from nnlo_lib.train.trainer import Trainer

BOUND, CRITIC_STEPS = 0.01, 3
GRAPHS = {"d2": {"name": "cycle", "weights": "lazy_metropolis"}}
UNEVEN = {"name": "directed_edges", "edges": [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]}


CASES = {
    **{name: {"algorithm": {"name": name}} for name in ALGORITHMS},
    **{
        f"{name}, {compression}": {"algorithm": {"name": name}, "compression": {"name": compression}}
        for name in ALGORITHMS
        for compression in ("sign", "qsgd", "top_k", "random_k", "powersgd", "fp16")
        if ALGORITHMS[name].compression == "any" or (ALGORITHMS[name].compression == "cast" and compression == "fp16")
    },
    "average, often": {"algorithm": {"name": "average", "sync_every": 3}},
    "diloco, often": {"algorithm": {"name": "diloco", "sync_every": 3}},
    "downpour, accrued": {"algorithm": {"name": "downpour", "sync_every": 4}},
    "downpour, synchronous": {"algorithm": {"name": "downpour", "synchronous": True}},
    "downpour, masters": {"algorithm": {"name": "downpour", "masters": 2}},
    "easgd, often": {"algorithm": {"name": "easgd", "sync_every": 2, "alpha": 0.5}},
    "easgd, synchronous": {"algorithm": {"name": "easgd", "sync_every": 2, "synchronous": True}},
    "easgd, overshooting": {"algorithm": {"name": "easgd", "sync_every": 2, "synchronous": True, "alpha": 0.6}},
    "easgd, masters": {"algorithm": {"name": "easgd", "sync_every": 2, "masters": 2, "alpha": 0.6}},
    "gosgd, often": {"algorithm": {"name": "gosgd", "probability": 0.7}},
    "sgp, exponential": {"algorithm": {"name": "sgp"}, "topology": {"name": "exponential"}},
    "sgp, uneven": {"algorithm": {"name": "sgp"}, "topology": UNEVEN},
    "sgp, sequence": {"algorithm": {"name": "sgp"}, "topology": {"name": "sequence", "of": [{"name": "cycle"}, UNEVEN]}},
    "dsgd, in place": {"algorithm": {"name": "dsgd", "mixing": "in_place"}},
    "dsgd, dropped links": {"algorithm": {"name": "dsgd"}, "topology": {"name": "complete", "drop": 0.4}},
}  # fmt: skip
UNBOUNDED = {"diloco", "noloco", "gem", "adpsgd", "d2", "prox_pda"}
TRACKING = {"dsgt", "dinno", "next", "prox_pda", "scaffold"}
EXCHANGES_GRADIENTS = {"allreduce", "downpour"}


def marked(cases):
    """Return the cases; trainings with compressions other than `top_k` are exhaustive."""
    rare = [case for case in cases if CASES[case].get("compression", {"name": "top_k"})["name"] != "top_k"]
    return [pytest.param(case, marks=pytest.mark.exhaustive) if case in rare else case for case in cases]


def settings(case, **problem):
    args = {"filters": [2], "hidden": 0, "latent": 2, "batch_norm": False}
    servers = ALGORITHMS[case.partition(",")[0]].supports_server_tree + ("masters" in case)
    rule = {"name": "sgd" if case == "scaffold" else "rmsprop", "lr": 0.02}
    return {
        "topology": GRAPHS.get(case, {"name": "cycle"}), **CASES[case],
        "problem": {"name": "gan", **problem}, "model": {"name": "wgan", "args": args}, "loss": "least_squares",
        "train": {"epochs": 1, "batch_size": 3, "steps_per_epoch": 7, "optimizer": rule},
        "parallel": {"ranks": 4 + servers, "transport": "simulated", "simulation": {"jitter": 0.5}},
    }  # fmt: skip


def refusal(run):
    """Return the key for which the configuration refuses the run, or None."""
    try:
        Run.model_validate(run)
    except ValidationError as error:
        return error.errors()[0]["ctx"]["at"]
    return None


def breaks_bound(case):
    name, _, variant = case.partition(", ")
    compressed = "compression" in CASES[case] and name not in EXCHANGES_GRADIENTS | {"individual", "dinno"}
    variants = ("overshooting", "uneven", "sequence")
    return name in UNBOUNDED or compressed or variant in variants or case == "easgd, masters"


def breaks_steps(case):
    name = case.partition(",")[0]
    return name in TRACKING or (name in EXCHANGES_GRADIENTS and "compression" in CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_a_setting_that_would_not_be_kept_is_refused(case):
    at = refusal(settings(case, weight_clip=BOUND))
    assert at in ([("problem", "weight_clip"), ("algorithm", "name")] if breaks_bound(case) else [None])
    at = refusal(settings(case, critic_steps=CRITIC_STEPS))
    assert at == (("problem", "critic_steps") if breaks_steps(case) else None)


@pytest.mark.parametrize(
    "case", marked([each for each in CASES if not (breaks_bound(each) and breaks_steps(each))])
)
def test_bound_of_the_critic_and_steps_of_the_generator_are_kept(tmp_path, small_store, monkeypatch, case):
    wanted = {} if breaks_bound(case) else {"weight_clip": BOUND}
    wanted |= {} if breaks_steps(case) else {"critic_steps": CRITIC_STEPS}
    largest, moves = bounds(monkeypatch), generator_moves(monkeypatch)
    simulate(watched(tmp_path, small_store, {}, **settings(case, **wanted)))
    published = load_file(tmp_path / "model.safetensors")
    largest += [float(value.abs().max()) for name, value in published.items() if name.startswith("critic")]
    if "weight_clip" in wanted:
        assert max(largest) <= BOUND * (1 + 1e-5)
    # A server's moves are those of its pushes, which hold several batches.
    if "critic_steps" in wanted and not ALGORITHMS[case.partition(",")[0]].supports_server_tree:
        for (replica, network), count in moves.items():
            assert network == "critic." or count == moves[replica, "critic."] // CRITIC_STEPS > 0


def bounds(monkeypatch):
    """Return the largest weight of a critic after each step of any rank, and of all ranks at the end of each epoch."""
    largest, step, end = [], Trainer._step, Evaluator.end_epoch

    def note(context):
        critic, _ = layout_of_prefix(context.replica.layout, "critic.")
        largest.append(float(context.replica.theta[critic].abs().max()))

    def observed(self, *given):
        following = step(self, *given)
        note(self.context)
        return following

    def ended(self, cut=False):
        # Servers make no steps, and the last messages arrive after the last step.
        note(self._context)
        end(self, cut)

    monkeypatch.setattr(Trainer, "_step", observed)
    monkeypatch.setattr(Evaluator, "end_epoch", ended)
    return largest


def generator_moves(monkeypatch):
    """Return the number of steps in which an optimizer moves a network, by replica and network."""
    moves: Counter[tuple[int, str]] = Counter()
    step = NetworkOptimizer.step

    def counted(self, whole, moments, factor):
        moves[id(whole), self._prefix] += bool(whole.grad[self.slice].any())
        step(self, whole, moments, factor)

    monkeypatch.setattr(NetworkOptimizer, "step", counted)
    return moves


@pytest.mark.parametrize("case", ["allreduce", "gosgd"])
def test_half_steps_move_one_network_at_a_time(tmp_path, small_store, monkeypatch, case):
    moves = generator_moves(monkeypatch)
    problem = {"half_steps": True, "generator_batches": 2, "label_flips": 0.1}
    simulate(watched(tmp_path, small_store, {}, **settings(case, **problem)))
    # 7 steps of a cycle of 4: critic, critic, generator, generator.
    assert set(moves.values()) == {3, 4}
    assert all(count == (4 if network == "critic." else 3) for (_, network), count in moves.items())


@pytest.mark.parametrize("speeds", [{}, {1: 0.3}], ids=["equal", "one slow"])
def test_with_dynamic_dealing_every_node_trains_its_generator(tmp_path, small_store, monkeypatch, speeds):
    moves, run = generator_moves(monkeypatch), settings("gosgd", critic_steps=4)
    run["train"] = {"batch_size": 5, "dealing": "dynamic"}
    run["parallel"] |= {"simulation": {"speeds": speeds}}
    simulate(watched(tmp_path, small_store, {}, **run))
    for (replica, network), count in moves.items():
        assert network == "critic." or count == moves[replica, "critic."] // 4 > 0
