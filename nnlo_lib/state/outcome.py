"""Former place of AttemptOutcome; deleted as soon as all imports name the new one."""

from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED, AttemptOutcome

__all__ = ["EXIT_PREEMPTED", "AttemptOutcome"]
