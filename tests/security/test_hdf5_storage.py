"""HDF5 files that refer to other files of the machine."""

import h5py
import pytest
from helpers.hostile_files import SECRET
from helpers.hostile_readers import network, rows

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.weights import load_weights
from nnlo_lib.mpi_learn import H5Data


def test_a_link_of_an_hdf5_file_reads_only_hdf5(tmp_path):
    """Links to other HDF5 files are a documented feature; links to other files are refused."""
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(tmp_path / "secret"), "/x")
    with pytest.raises(UserError, match=r"x\.h5"):
        rows(tmp_path / "x.h5")


def test_keras_weights_with_external_storage_are_refused(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    (tmp_path / "net.json").write_text(model.to_json())
    (tmp_path / "secret").write_bytes(bytes(32))
    model.save_weights(path := tmp_path / "w.weights.h5")
    with h5py.File(path, "a") as file:
        name = next(name for name in datasets(file) if file[name].shape == (4, 2))
        del file[name]
        file.create_dataset(name, (4, 2), "f4", external=[(str(tmp_path / "secret"), 0, 32)])
    with pytest.raises(UserError, match="does not fit the model"):
        load_weights(network(tmp_path / "net.json"), str(path))


def datasets(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


@pytest.mark.parametrize("name", ["features", "features/x"])
def test_mpi_learn_refuses_external_storage(tmp_path, name):
    (tmp_path / "secret").write_bytes(b"0" * 30)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset(name, (30,), "u1", external=[(str(tmp_path / "secret"), 0, 30)])
        file["labels"] = range(30)
    with pytest.raises(ValueError, match="external storage"):
        H5Data().load_data(str(tmp_path / "x.h5"))
