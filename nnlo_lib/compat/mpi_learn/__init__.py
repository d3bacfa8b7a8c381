"""mpi_learn's Python interface on top of nnlo: builder, data, algorithm and manager (docs/guides/mpi_learn.md)."""

import os

from nnlo_lib.core.user_code import KERAS_ENVIRONMENT

# Keras reads these variables when the user's script imports it.
os.environ |= KERAS_ENVIRONMENT

from nnlo_lib.compat.mpi_learn.builders import Algo, Data, H5Data, ModelBuilder, ModelFromJson
from nnlo_lib.compat.mpi_learn.manager import MPIManager

# mpi_learn's class for TensorFlow; here, Keras runs on PyTorch.
ModelFromJsonTF = ModelFromJson

__all__ = ["Algo", "Data", "H5Data", "MPIManager", "ModelBuilder", "ModelFromJson", "ModelFromJsonTF"]
