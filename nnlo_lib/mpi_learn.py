"""mpi_learn's interface under its documented import path; the code is in nnlo_lib/compat/mpi_learn."""

from nnlo_lib.compat.mpi_learn import (
    Algo,
    Data,
    H5Data,
    ModelBuilder,
    ModelFromJson,
    ModelFromJsonTF,
    MPIManager,
)

__all__ = ["Algo", "Data", "H5Data", "MPIManager", "ModelBuilder", "ModelFromJson", "ModelFromJsonTF"]
