"""Masters and synchronous masters of mpi_learn's manager, as settings of the experiment."""

import pytest

from nnlo_lib.config import Run
from nnlo_lib.mpi_learn import Algo


@pytest.mark.parametrize("mode", ["sgd", "easgd"])
@pytest.mark.parametrize("synchronous", [True, False])
def test_masters_of_the_manager(mode, synchronous):
    settings = Algo("adam", loss="mse", mode=mode).experiment_settings(7, 2, synchronous)
    algorithm = Run.model_validate({**settings, "parallel": {"ranks": 7}}).algorithm
    assert (algorithm.masters, algorithm.synchronous) == (2, synchronous)
