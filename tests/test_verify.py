"""`nnlo verify` on trainings that really ran: all is well, and each file that is tampered with is named."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from test_cli import nnlo, refused

from nnlo_lib.config import Experiment
from nnlo_lib.data.manifest import sha256
from nnlo_lib.data.partition_file import load, save
from nnlo_lib.data.sampling import Sampling
from nnlo_lib.jobs import Plan
from nnlo_lib.single import prepare
from nnlo_lib.state.ledger import Ledger, row
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import simulate
from nnlo_lib.train.task import Task

CASES = {
    "allreduce": {},
    "dsgd": {"data": {"validation": 0.2, "partition": {"name": "by_class"}}},
    "downpour": {"train": {"dealing": "dynamic"}},
    "short": {"train": {"steps_per_epoch": 3}},
    "short-parts": {"train": {"steps_per_epoch": 3}, "data": {"partition": {"name": "by_class"}}},
    "short-dynamic": {"algorithm": {"name": "downpour"}, "train": {"steps_per_epoch": 3, "dealing": "dynamic"}},
}
ATTEMPT = {
    "attempt": 1, "started": "2026-01-02T03:04:00+00:00", "ended": "2026-01-02T03:05:00+00:00", "seconds": 60.0,
    "host": "node0", "job": None, "reason": "preempted", "error": None, "from": 0, "reached": 9, "saved": 6, "ranks": 3,
}  # fmt: skip
GO_ON = {"attempt": 2, "started": "2026-01-02T03:10:00+00:00", "ended": "2026-01-02T03:11:00+00:00", "from": 6}
