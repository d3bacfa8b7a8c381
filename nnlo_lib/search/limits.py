"""What ends a search: enough trials, a trial good enough, a budget used up."""

from nnlo_lib.search.knowledge import Knowledge


def exhausted(known: Knowledge) -> str | None:
    """Say why no new trial is begun, if none is."""
    if len(known.trials) >= known.search.trials:
        return f"{len(known.trials)} trials"
    return None
