"""Weights of a finished run in the file format of another system."""

from pathlib import Path

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.models.pydtnn_weights import AxisOrder, pydtnn_arrays, write_pydtnn_weights
from nnlo_lib.train.replica.model_init import image_channels
from nnlo_lib.workflow.evaluation.evaluated_model import EvaluationRequest, load_evaluated_model


def export_weights(folder: Path, output: Path, order: AxisOrder, trust: bool) -> int:
    """Write the weights of a finished run as PyDTNN's NPZ file; return the number of arrays.

    Args:
        folder: folder of the finished run.
        output: file to write, with the suffix .npz.
        order: order of the axes, `--tensor_format` of PyDTNN.
        trust: allow that files that the run names run their code.

    Raises:
        UserError: if the file has another suffix, or if PyDTNN has no such network.
    """
    if output.suffix != ".npz":
        raise UserError(f"{output}: unknown suffix; name a file with the suffix .npz, PyDTNN's format")
    model = load_evaluated_model(EvaluationRequest(folder, trust=trust))
    arrays = pydtnn_arrays(model.module, image_channels(model.tensors.shape), order)
    with atomic_write(output) as part:
        write_pydtnn_weights(part, arrays)
    return len(arrays)
