"""Mistakes of a user's algorithm end in a sentence, and not in a plausible result of rank 0 or of a resumed training."""

import re

import pytest
from helpers.training_here import training_here

HEAD = """
import numpy as np
import torch
from nnlo_lib import Algorithm, Capabilities

class Own(Algorithm):
    capabilities = Capabilities(one_model=True)

    def before_evaluation(self, replica):
        pass

"""
MEAN = "self.comm.allreduce(replica.grad); replica.grad.div_(self.comm.size)"
NOTHING = "    def on_gradient(self, replica, share):\n        pass\n"


def method(name, *lines, arguments="self, replica, share"):
    return f"    def {name}({arguments}):\n" + "".join(f"        {line}\n" for line in lines)


def own(folder, text, **changes):
    run = training_here(folder, {"name": "own.py:Own"}, train={"epochs": 1}, **changes)
    (folder / "own.py").write_text(HEAD + text)
    return run


def test_ranks_without_communication_do_not_claim_one_model(tmp_path):
    """Each rank trains alone; the accuracy of rank 0 would look normal."""
    said = own(tmp_path, NOTHING).finish(expect=2)
    assert "Own: in epoch 1, step" in said
    assert "the parameters of 50% of the ranks differ from those of rank 0" in said
    assert "replicas_differ = True" in said
    assert not (tmp_path / "results/t/t/seed-0/summary.json").exists()
    assert "parameters of" not in own(tmp_path / "one", NOTHING, ranks=1).finish()


def test_a_class_reads_the_gradient_in_any_method(tmp_path):
    """A subclass of dsgd inherits `keeps_gradient`, but may have methods that need the gradient."""
    reads = method("on_parameters", "assert replica.grad.any()", arguments="self, replica")
    own(tmp_path, "    keeps_gradient = False\n" + method("on_gradient", MEAN) + reads).finish()


STATEFUL = {
    "tensor": ("self.m = torch.zeros_like(replica.grad)", "self.m.add_(replica.grad)", "self.m"),
    "made later": ("pass", "self.m = replica.grad.clone()", "self.m"),
    "in a list": ("self.all = [1, torch.zeros(3)]", "self.all[1] = self.all[1] + 1", "self.all[1]"),
    "number": ("self.rounds = 0", "self.rounds += 1", "self.rounds"),
    "array": ("self.a = np.zeros(2)", "self.a += 1", "self.a"),
    "optimizer": (
        "self.opt = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1)", "self.opt.param_groups[0]['lr'] *= 0.5",
        "self.opt.state_dict()['param_groups'][0]['lr']",
    ),
    "generator": ("self.draw = np.random.default_rng(0)", "self.draw.random()", "self.draw"),
}  # fmt: skip


@pytest.mark.parametrize(("start", "step", "name"), STATEFUL.values(), ids=STATEFUL)
def test_state_that_checkpoints_lack_is_named(tmp_path, start, step, name):
    begin = method("start", "super().start(replica)", start, arguments="self, replica")
    said = own(tmp_path, begin + method("on_gradient", MEAN, step)).finish()
    assert f"warning: Own: {name} changed in training, but state() does not return it" in said


KEPT = {
    "returned": ("self.m = torch.zeros(3)", "self.m += 1", "{'m': self.m}"),
    "a copy": ("self.m = torch.zeros(3)", "self.m += 1", "{'m': self.m.clone()}"),
    "a number as a tensor": ("self.rounds = 0", "self.rounds += 1", "{'rounds': torch.tensor([self.rounds])}"),
    "constant": ("self.scale, self.table = 0.5, torch.ones(3)", "pass", "{}"),
    "vectors of the replica": ("self.theta, self.grad = replica.theta, replica.grad", "pass", "{}"),
}  # fmt: skip


@pytest.mark.parametrize(("start", "step", "state"), KEPT.values(), ids=KEPT)
def test_saved_or_constant_attributes_are_right(tmp_path, start, step, state):
    begin = method("start", "super().start(replica)", start, arguments="self, replica")
    state = method("state", f"return {state}", arguments="self")
    said = own(tmp_path, begin + state + method("on_gradient", MEAN, step)).finish()
    assert "state()" not in said


UNEQUAL = {
    "another call": (
        "self.comm.allreduce(replica.grad) if self.comm.rank else self.comm.barrier()",
        r"rank \d calls (barrier\(\) while rank \d calls allreduce\(\) of|allreduce\(\) of [\d,]+ numbers of torch.float32 while rank \d calls barrier)",
    ),
    "another length": ("self.comm.allreduce(replica.grad[: 10 + self.comm.rank])", r"allreduce\(\) of 1[01] numbers of torch.float32 while"),
    "another root": ("self.comm.broadcast(replica.grad, self.comm.rank)", r"broadcast\(\) from rank [01] of .* while rank [01] calls broadcast"),
    "one rank only": ("self.comm.rank and self.comm.allreduce(replica.grad)", r"while rank \d calls"),
}  # fmt: skip


@pytest.mark.parametrize(("step", "words"), UNEQUAL.values(), ids=UNEQUAL)
def test_unequal_collective_calls_are_one_sentence(tmp_path, step, words):
    run = own(tmp_path, method("on_gradient", step))
    said = run.finish(expect=2)
    [line] = [line for line in said.splitlines() if "nnlo: error" in line]
    assert re.search(words, line), line
    assert "all ranks must make the same collective calls" in line
    assert "Traceback" not in said
