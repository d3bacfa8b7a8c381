"""A stop request does not wait for the end of a long validation: the steps are saved, and the validation starts over."""

import pytest
from helpers.algorithm_trainings import SYNCHRONOUS, measured, rows, task

from nnlo_lib.state.training_records import JsonlTable
from nnlo_lib.train.evaluation import evaluator
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag

CASES = {
    "end of an epoch": ("allreduce", {}),
    "each replica": ("dinno", {}),
    "with a server": ("downpour, synchronous", {}),
    "within an epoch": ("allreduce", {"train": {"validate_every": 4}}),
    "epoch ends early": ("dsgt", {"train": {"target": {"metric": "val_loss", "value": 1e9}}}),
}


class InValidation(StopFlag):
    """Stop flag that requests a stop from the second batch of a validation on."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.batches, self.requested = 0, False
        original = evaluator.evaluation_batches

        def counted(*arguments):
            for batch in original(*arguments):
                self.batches += 1
                self.requested = self.requested or self.batches > 1
                yield batch

        monkeypatch.setattr(evaluator, "evaluation_batches", counted)

    def __call__(self):
        return self.requested


@pytest.mark.parametrize("case", CASES)
def test_the_training_ends_as_the_undisturbed_one(tmp_path, manifest, monkeypatch, case):
    name, settings = CASES[case]
    settings = SYNCHRONOUS[name] | settings
    whole, stopped = (task(tmp_path / part, manifest, name, settings) for part in ("whole", "stopped"))
    assert train_simulated(whole, StopFlag())
    with monkeypatch.context() as patched:
        patched.setattr(evaluator, "STOP_PATIENCE_S", -1)
        assert not train_simulated(stopped, InValidation(patched))
    assert not (stopped.state / "history.jsonl").exists() or rows(stopped) == []
    assert not JsonlTable(stopped.state / "validations.jsonl").rows
    assert list((stopped.state / "checkpoints").iterdir())
    assert train_simulated(stopped, StopFlag())
    assert measured(stopped) == measured(whole)


def test_a_short_validation_is_finished(tmp_path, manifest, monkeypatch):
    stopped = task(tmp_path / "stopped", manifest, "allreduce", SYNCHRONOUS["allreduce"])
    with monkeypatch.context() as patched:
        patched.setattr(evaluator, "STOP_PATIENCE_S", 3600)
        assert not train_simulated(stopped, InValidation(patched))
    assert [row["epoch"] for row in rows(stopped)] == [1]
