"""`nnlo verify`: check all that finished trainings left behind, without training anything."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from nnlo_lib.errors import UserError
from nnlo_lib.verify.attempts import attempts
from nnlo_lib.verify.files import checkpoints, outputs, store
from nnlo_lib.verify.finding import Finding, note
from nnlo_lib.verify.finished import Finished, paused, trainings
from nnlo_lib.verify.history import history
from nnlo_lib.verify.ledger import ledger
from nnlo_lib.verify.reproducible import reproducible


def verify(folders: Sequence[str], shards: bool) -> int:
    """Print a line for each check of each training in `folders`; return 1 if something is wrong, else 0.

    shards: read all of the data, too. Raises UserError at the end for trainings that are not finished.
    """
    found = [job for folder in folders for job in trainings(Path(folder))]
    unfinished, wrong = [], False
    for folder in found:
        try:
            why = paused(folder)
            findings = [note(why)] if why else list(_findings(Finished.load(folder), shards))
        except UserError as error:
            unfinished.append(str(error))
            continue
        print(folder, *findings, sep="\n", flush=True)
        wrong |= any(finding.status == "FAILED" for finding in findings)
    if unfinished:
        raise UserError("\n  ".join(unfinished))
    return int(wrong)


def _findings(run: Finished, shards: bool) -> Iterator[Finding]:
    yield from outputs(run)
    yield from checkpoints(run)
    yield from history(run)
    yield from ledger(run)
    yield from store(run, shards)
    yield from attempts(run)
    yield from reproducible(run)
