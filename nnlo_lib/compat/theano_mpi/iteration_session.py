"""One process of a rule: `python -m nnlo_lib.compat.theano_mpi.iteration_session SESSION`, started by the rule."""

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.compat.mpi_learn.training import report_error
from nnlo_lib.compat.theano_mpi.iteration_model import build_iteration_model
from nnlo_lib.compat.theano_mpi.iteration_rank import IterationRank
from nnlo_lib.compat.theano_mpi.rule_settings import RuleSettings
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.pipe import wait_until_read

PARAMETERS_FILE = "params.safetensors"


def write_results(folder: Path, rank: IterationRank, rows: list[dict[str, float]]) -> None:
    """Write the history and the parameters.

    Args:
        folder: folder of the results.
        rank: a rank that has finished.
        rows: its history.
    """
    with atomic_write(RunPaths(folder).history) as part, part.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    with atomic_write(folder / PARAMETERS_FILE) as part:
        tensors = {str(place): each.detach().cpu().clone() for place, each in enumerate(rank.model.params)}
        save_file(tensors, part)


def model_config(comm: Communicator, settings: RuleSettings, devices: list[str], name: str) -> dict[str, Any]:
    """Return the argument of the model's class on this rank.

    Args:
        comm: communicator of all ranks.
        settings: settings of the rule.
        devices: devices of all ranks, as `cuda0` or `cpu`.
        name: name of the class.
    """
    device = devices[comm.rank]
    # A server builds the model, too, but reads no samples.
    return {
        "rank": max(0, comm.rank - settings.servers), "size": comm.size - settings.servers, "verbose": comm.rank == 0,
        "mname": name, "device": f"cuda:{device.removeprefix('cuda')}" if device.startswith("cuda") else "cpu",
    }  # fmt: skip


def main() -> None:
    """Train the session given as JSON; an error ends all ranks."""
    from mpi4py import MPI

    from nnlo_lib.comm.mpi.communicator import MPICommunicator

    session = json.loads(sys.argv[1])
    settings = RuleSettings(**session["settings"])
    try:
        comm = MPICommunicator()
        config = model_config(comm, settings, session["devices"], session["modelclass"])
        model = build_iteration_model(session["modelfile"], session["modelclass"], config)
        rank = IterationRank(model, comm, settings)
        rows = rank.run()
        if comm.rank == 0:
            write_results(Path(session["folder"]), rank, rows)
        comm.free_counter()
    except BaseException as error:
        report_error(error)
        wait_until_read(sys.stderr)  # after Abort, mpiexec may drop output that it has not read
        MPI.COMM_WORLD.Abort(2 if isinstance(error, UserError) else 1)
        os._exit(1)


if __name__ == "__main__":
    main()
