"""Export of a trained model: PyDTNN's weights, or a program for torch or ONNX that includes the normalization of its inputs.

A program is kept only if its outputs are the model's outputs. `torch.export` is used for torch, because TorchScript is deprecated.
What it does not compute, the encoding of columns and the names of classes, is described in JSON: beside it and inside it.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from nnlo_lib.config.problem import ClassificationConfig
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.readers.base import Array, EncodedColumn, Inputs
from nnlo_lib.data.readers.table_options import TableOptions
from nnlo_lib.models.pydtnn_weights import AxisOrder, pydtnn_arrays, write_pydtnn_weights
from nnlo_lib.problems.losses import decision_threshold
from nnlo_lib.problems.supervised import loss_of_output, outputs_by_name
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.evaluation.evaluate import evaluation_samples, output_batches
from nnlo_lib.train.replica.model_build import image_channels
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.workflow.model_evaluation import (
    EvaluatedModel,
    EvaluationRequest,
    load_evaluated_model,
    refuse_published_output,
)
from nnlo_lib.workflow.prediction import image_form
from nnlo_lib.workflow.trained_run import run_or_best

ExportFormat = Literal["pydtnn", "torch", "onnx"]
SUFFIXES: dict[ExportFormat, str] = {"pydtnn": ".npz", "torch": ".pt2", "onnx": ".onnx"}
COMPARED_SAMPLES = 64
# Other kernels add in another order; more than this share of the largest output is another function.
TOLERANCE = 1e-4
Program = Callable[[Inputs], Sequence[Array]]
DESCRIPTION = "nnlo"  # key of the description in an ONNX file; nnlo.json in a .pt2 file
# What makes probabilities of the outputs that a loss takes, see losses.class_probabilities.
PROBABILITIES = {"cross_entropy": "softmax", "binary_cross_entropy": "sigmoid", "nll": "exp"}


class NormalizedModel(nn.Module):
    """A model of samples as the data store has them: crop and normalization come first.

    Args:
        module: model in evaluation mode, on the CPU.
        tensors: preprocessor of its inputs, on the CPU.
    """

    def __init__(self, module: nn.Module, tensors: Preprocessor) -> None:
        super().__init__()
        self.module, self._tensors = module, tensors

    def forward(self, *inputs: Tensor) -> Any:
        return self.module(*self._tensors.normalized(inputs))


def export_model(folder: Path, output: Path, kind: ExportFormat | None, order: AxisOrder, trust: bool) -> str:
    """Write a trained model to a file; return a sentence about it.

    Args:
        folder: folder of a run, or of an experiment, whose best run is written.
        output: file to write; its suffix names the format unless `kind` does.
        order: order of the axes in PyDTNN's file, its option `--tensor_format`.
        trust: allow that files that the run names run their code.

    Raises:
        UserError: if the suffix does not fit the format, or the format cannot express the model.
    """
    by_suffix = {suffix: name for name, suffix in SUFFIXES.items()}
    if by_suffix.get(output.suffix) is None or kind not in (None, by_suffix[output.suffix]):
        wanted = (
            f"the suffix of --to {kind} is {SUFFIXES[kind]}"
            if kind
            else f"name a file with one of the suffixes {', '.join(by_suffix)}"
        )
        raise UserError(f"{output}: unknown suffix; {wanted}")
    refuse_published_output(output)
    folder = run_or_best(folder)
    model = load_evaluated_model(EvaluationRequest(folder, trust=trust, device="cpu"))
    if output.suffix == SUFFIXES["pydtnn"]:
        arrays = pydtnn_arrays(model.module, image_channels(model.tensors.shape), order)
        with atomic_write(output) as part:
            write_pydtnn_weights(part, arrays)
        return f"{output}: {len(arrays)} arrays in PyDTNN's layout ({order})"
    samples = _samples(model, folder)
    description = json.dumps(_description(model, samples), indent=1, ensure_ascii=False)
    write = _torch_program if output.suffix == SUFFIXES["torch"] else _onnx_program
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporters, about their own internals
            exported = NormalizedModel(model.module, model.tensors)
            content, program = write(exported, _tensors(samples, 2), description)
    except UserError:
        raise
    except Exception as error:  # the exporters raise many types for code that they cannot trace
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"{output}: the model {model.run.model.name} cannot be exported ({type(error).__name__}: {reason}); use it in Python: "
            "nnlo_lib.load_run(FOLDER).model()"
        ) from error
    difference = _largest_difference(model, program, samples, output)
    with atomic_write(output) as part:
        part.write_bytes(content)
    beside = output.with_name(f"{output.name}.json")
    with atomic_write(beside) as part:
        part.write_text(f"{description}\n")
    inputs = ", ".join(
        f"{each.name} {each.dtype} {('n', *each.shape)}".replace("'", "") for each in model.data.inputs
    )
    return (
        f"{output}: program of {folder} with the normalization, inputs {inputs} as in the data store, described in {beside.name}; on "
        f"{plural(len(samples[0]), 'sample')}, its outputs differ from the model's by at most {difference:.2g}"
    )


def _samples(model: EvaluatedModel, folder: Path) -> Inputs:
    """Return a few samples of the data store, at least two."""
    _, split, indices = evaluation_samples(model.data, FinishedRun(folder).paths.partition)
    return split.take(np.resize(indices, max(2, min(COMPARED_SAMPLES, len(indices)))))[0]


@torch.no_grad()
def _description(model: EvaluatedModel, samples: Inputs) -> dict[str, Any]:
    """Return how raw samples become the inputs of the program, and what its outputs mean."""
    data, problem = model.data, model.run.problem
    found: dict[str, Any] = {
        "inputs": [
            {"name": each.name, "dtype": each.dtype, "shape": ["n", *each.shape]} for each in data.inputs
        ]
    }
    if data.columns:
        options = TableOptions.of(data.settings["reader"])
        found["missing"], found["decimal"] = list(options.na), options.decimal
        found["columns"] = list(map(_column, data.columns))
    elif form := image_form(data):
        found["images"] = {**form, "values": "0..255" if data.inputs[0].dtype == "uint8" else "0..1"}
    if data.classes is not None:
        found["classes"] = data.class_labels
    if isinstance(problem, ClassificationConfig):
        few = tuple(array[:2].copy() for array in samples)
        loss = loss_of_output(model.run.loss, next(output_batches(model.module, model.tensors, few)))
        function = PROBABILITIES.get(loss, "none: the outputs are scores")
        found["outputs"] = {
            "probabilities": "identity" if problem.outputs == "probabilities" else function,
            "threshold_of_a_single_output": decision_threshold(problem, loss),
        }
    return found


def _column(column: EncodedColumn) -> dict[str, Any]:
    described: dict[str, Any] = {"name": column.name, "encoding": "number", "missing": column.missing}
    if column.values:
        described["encoding"] = "one_hot" if column.one_hot else "number of the value"
        described["values"] = list(column.values)
        described["unknown"] = "zeros" if column.one_hot else len(column.values)
    return described


def _tensors(samples: Inputs, count: int) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(array[:count].copy()) for array in samples)


def _torch_program(module: nn.Module, example: tuple[Tensor, ...], description: str) -> tuple[bytes, Program]:
    """Return the content of a .pt2 file, and the program that it holds."""
    shapes = (tuple({0: torch.export.Dim.DYNAMIC} for _ in example),)
    file = io.BytesIO()
    exported = torch.export.export(module, example, dynamic_shapes=shapes)
    torch.export.save(exported, file, extra_files={f"{DESCRIPTION}.json": description})
    loaded = torch.export.load(io.BytesIO(file.getvalue())).module()

    def program(inputs: Inputs) -> list[Array]:
        return [each.numpy() for each in outputs_by_name(loaded(*_tensors(inputs, len(inputs[0])))).values()]

    return file.getvalue(), program


def _onnx_program(module: nn.Module, example: tuple[Tensor, ...], description: str) -> tuple[bytes, Program]:
    """Return the content of an ONNX file, and the program that it holds. Raises UserError if a package is missing."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch's exporter imports it
    except ImportError as error:
        raise UserError(f"--to onnx needs {error.name}; pip install 'nnlo[onnx]'") from error
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that no model here needs
    shapes = (tuple({0: torch.export.Dim.DYNAMIC} for _ in example),)
    exported = torch.onnx.export(module, example, dynamo=True, dynamic_shapes=shapes, verbose=False)
    assert exported is not None, "with `dynamo`, the exporter returns the program"
    model = exported.model_proto
    model.metadata_props.add(key=DESCRIPTION, value=description)
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def program(inputs: Inputs) -> list[Array]:
        found: list[Array] = session.run(None, dict(zip(names, inputs, strict=True)))
        return found

    return content, program


@torch.no_grad()
def _largest_difference(model: EvaluatedModel, program: Program, samples: Inputs, output: Path) -> float:
    """Return the largest difference of the outputs for all samples, and for one. Raises UserError if it is too large."""
    largest = 0.0
    for count in (len(samples[0]), 1):
        inputs = tuple(array[:count] for array in samples)
        copies = tuple(array.copy() for array in inputs)  # which are normalized in place
        expected = outputs_by_name(next(output_batches(model.module, model.tensors, copies)))
        for wanted, got in zip(expected.values(), program(inputs), strict=True):
            difference = float((wanted.double() - torch.from_numpy(got)).abs().max())
            largest = max(largest, difference)
            # Not `>`, which NaN would pass.
            if not difference <= TOLERANCE * max(1.0, float(wanted.abs().max())):
                raise UserError(
                    f"{output}: not written, because the program's outputs differ from the model's by {difference:.3g} on {count} "
                    "samples of the data store; use the model in Python: nnlo_lib.load_run(FOLDER).model()"
                )
    return largest
