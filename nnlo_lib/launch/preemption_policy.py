"""What a job does after its ranks have saved because the scheduler stops it. Imports nothing: parsers need it."""

from typing import Literal, get_args

PreemptionPolicy = Literal["wait", "requeue", "exit"]
PREEMPTION_POLICIES: tuple[PreemptionPolicy, ...] = get_args(PreemptionPolicy)
