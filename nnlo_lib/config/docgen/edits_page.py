"""Reference page of edits: a hand-written introduction, then what an edit of each key causes."""

from collections.abc import Iterator

from nnlo_lib.config import Experiment
from nnlo_lib.config.docgen.reference_page import MARKER
from nnlo_lib.config.edit_effects import EditEffect, keys_with

HEADER = ("effect", "`snakemake`", "`nnlo run`", "`nnlo search`, and a search with `snakemake`")
REFUSED = "refused: all trials must have equal settings"
COLUMNS = {
    EditEffect.RETRAIN: (
        "trains, evaluates and reports the runs concerned again, from step 0",
        "trains again from step 0; an unfinished training is kept in `state/former-<n>/`",
        REFUSED,
    ),
    EditEffect.RESUME: (
        "resumes from the last checkpoint, then evaluates and reports",
        "resumes from the last checkpoint",
        REFUSED,
    ),
    EditEffect.SAME_DATA: (
        "keeps the results of runs whose files have the same contents; trains the other runs again, from step 0",
        "keeps the result if the files have the same contents; otherwise trains again from step 0",
        "keeps all results if the files have the same contents; otherwise refused",
    ),
    EditEffect.NEXT_ATTEMPT: (
        "keeps finished trainings and writes the report again; other trainings use the new value from their next attempt",
        "keeps the result; another training uses the new value from its next attempt",
        "keeps all results; the next trainings, including trainings of the best trial, use the new value",
    ),
    EditEffect.JOBS: (
        "trains only runs, seeds and folds that have no results, and reports those in the file; results of removed ones stay "
        "on disk",
        "trains the chosen job if it has no results",
        "`seeds`: retrains the best trial with added seeds only; the first seed is frozen. `name`: starts another search",
    ),
    EditEffect.SEARCH_END: (
        "see the last column",
        "no effect",
        "continues the search if the new value allows more trainings; otherwise keeps all results",
    ),
    EditEffect.FROZEN: ("see the last column", "no effect", REFUSED),
}


def edits_page(current: str) -> str:
    """Return the page: the introduction of `current`, the effects, and the keys with each effect."""
    introduction = current.partition(MARKER)[0]
    return "\n".join([introduction + MARKER, *_effects(), "", *_keys(), ""])


def _effects() -> Iterator[str]:
    yield from ("## Effects", "", _row(*HEADER), _row(*["---"] * len(HEADER)))
    yield from (_row(effect.value, *COLUMNS[effect]) for effect in EditEffect)


def _keys() -> Iterator[str]:
    yield from ("## Keys", "", _row("effect", "keys and sections"), _row("---", "---"))
    for effect in EditEffect:
        yield _row(effect.value, ", ".join(f"`{key}`" for key in keys_with(Experiment, effect)))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
