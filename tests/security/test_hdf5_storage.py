"""HDF5 files of other programs that refer to other files of the machine."""

import h5py
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.saved_networks import load_weights
from nnlo_lib.mpi_learn import H5Data


def test_keras_weights_with_external_storage_are_refused(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    (tmp_path / "net.json").write_text(model.to_json())
    (tmp_path / "secret").write_bytes(bytes(32))
    model.save_weights(path := tmp_path / "w.weights.h5")
    found = []
    with h5py.File(path, "a") as file:
        file.visititems(
            lambda name, item: found.append(name) if getattr(item, "shape", 0) == (4, 2) else None
        )
        (name,) = found
        del file[name]
        file.create_dataset(name, (4, 2), "f4", external=[(str(tmp_path / "secret"), 0, 32)])
    with pytest.raises(UserError, match="does not fit the model"):
        load_weights(build_model(str(tmp_path / "net.json"), {}, (4,), 2, 0), str(path))


@pytest.mark.parametrize("name", ["features", "features/x"])
def test_mpi_learn_refuses_external_storage(tmp_path, name):
    (tmp_path / "secret").write_bytes(b"0" * 30)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset(name, (30,), "u1", external=[(str(tmp_path / "secret"), 0, 30)])
        file["labels"] = range(30)
    with pytest.raises(ValueError, match="external storage"):
        H5Data().load_data(str(tmp_path / "x.h5"))
