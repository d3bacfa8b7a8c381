"""Tests of the metric by which `nnlo simulate` compares runs."""

import pytest

from nnlo_lib.workflow.simulation import comparing_metric


@pytest.mark.parametrize(
    ("metrics", "column"),
    [
        (("accuracy", "mine.py:f1"), "val_accuracy"),
        (("mine.py:f1", "mae"), "val_mae"),  # the smallest F1 would be taken for the best one
        (("mine.py:f1",), "val_loss"),
        ((), "val_loss"),
    ],
)
def test_a_metric_without_a_direction_compares_nothing(metrics, column):
    assert comparing_metric(metrics) == column
