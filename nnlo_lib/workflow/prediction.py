"""Predictions for new samples: rows or arrays of the user, checked and prepared as in the training, and a table of the results."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from nnlo_lib.config.problem import ClassificationConfig, RegressionConfig
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.readers.array_source import read_inputs
from nnlo_lib.data.readers.base import Array, Inputs
from nnlo_lib.data.readers.table import encode_rows
from nnlo_lib.data.readers.table_file import PARQUET_SUFFIXES, TABLE_SUFFIXES, saved_dataset_files
from nnlo_lib.data.readers.user_reader import is_nnlo_module, reader_options_of_module
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.problems.losses import decision_threshold, output_table, predicted
from nnlo_lib.problems.supervised import loss_of_output, primary_output
from nnlo_lib.train.evaluation.evaluate import output_batches
from nnlo_lib.workflow.model_evaluation import (
    EvaluatedModel,
    EvaluationRequest,
    load_evaluated_model,
    refuse_published_output,
)
from nnlo_lib.workflow.trained_run import run_or_best


def predict_file(target: Path, source: Path, output: Path, trust: bool) -> str:
    """Write the predictions for the samples of a file; return a sentence with their number.

    Args:
        target: folder of a run, or of an experiment, whose best run predicts.
        source: table in a form that the training can read if it read a table, else NPZ, NPY or HDF5 with the inputs.
        output: CSV or Parquet file.
        trust: allow that files that the run names run their code.

    Raises:
        UserError: if the samples do not fit the model.
    """
    parquet = output.name.lower().endswith(PARQUET_SUFFIXES)
    if not parquet and output.suffix.lower() != ".csv":
        raise UserError(
            f"--output: {output} has an unknown suffix; name a file with the suffix .csv or .parquet"
        )
    if parquet and find_spec("pyarrow") is None:
        raise UserError(f"--output: {output} needs pyarrow; pip install 'nnlo[parquet]', or name a .csv file")
    if not source.is_file() and not saved_dataset_files(source):
        raise UserError(f"{source}: no such file; name the file of the samples")
    if output.exists() and output.samefile(source):
        raise UserError(f"--output: {output} is the file of the samples; name a new file")
    refuse_published_output(output)
    model = load_evaluated_model(EvaluationRequest(run_or_best(target), trust=trust))
    table = _predictions(model, *_read_samples(model.data, source, trust))
    with atomic_write(output) as part:
        table.to_parquet(part) if parquet else table.to_csv(part, index=False, lineterminator="\n")
    return f"{output}: {plural(len(table), 'row')} of {source}, predicted by {model.weights.parent}"


def model_inputs(data: DataManifest, inputs: Sequence[Any], source: str = "predict") -> Inputs:
    """Return samples as the data store has them.

    Args:
        inputs: a DataFrame with the columns of the training's table, or an array (n, *shape) for each input.
        source: first word of an error.

    Raises:
        UserError: if a column is missing, an array has another shape or type, or a value is missing, NaN or infinite.
    """
    if len(inputs) == 1 and isinstance(inputs[0], pd.DataFrame):
        return (_encoded(data, inputs[0])[0],)
    if len(inputs) != len(data.inputs):
        names = ", ".join(column.name for column in data.inputs)
        raise UserError(f"{source}: {len(inputs)} arrays given, but the model has the inputs {names}")
    # A model that was trained with such values takes them.
    may_be_nan = any(shard.non_finite for split in data.splits.values() for shard in split.shards)
    arrays = []
    for given, column in zip(map(np.asarray, inputs), data.inputs, strict=True):
        # `same_kind` accepts float64 for float32, but refuses floats for bytes: images that are already
        # scaled to 0..1 would become zeros.
        if given.shape[1:] != column.shape or not np.can_cast(given.dtype, column.dtype, "same_kind"):
            raise UserError(
                f"{source}: {column.name} is {given.dtype} {given.shape}; expected {column.dtype} "
                f"{('n', *column.shape)}, as in the data store".replace("'", "")
            )
        with np.errstate(over="ignore"):
            stored = given.astype(column.dtype)
        for place in np.argwhere(~np.isfinite(stored))[:1] if not may_be_nan else ():
            where = f"row {place[0] + 1}" + (
                f", column {', '.join(map(str, place[1:] + 1))}" if len(place) > 1 else ""
            )
            raise UserError(
                f"{source}: {column.name}: {where} is {given[tuple(place)]} (rows and columns count from 1); correct the value, or "
                "leave the row out"
            )
        arrays.append(stored)
    if len({len(array) for array in arrays}) > 1:
        raise UserError(
            f"{source}: the inputs have {', '.join(str(len(array)) for array in arrays)} rows; give each as many"
        )
    return tuple(arrays)


def _encoded(data: DataManifest, source: Path | pd.DataFrame) -> tuple[Array, pd.DataFrame]:
    """Return the inputs of the rows of a table, (n, m), and their numbers and other columns. Raises UserError if the training read no table."""
    reader = data.settings["reader"]
    if not data.columns:
        remedy = (
            "its store, of an earlier version, does not have the encoding of the columns; remove the store "
            f"(nnlo data --remove {data.folder}), and convert it again (nnlo run FILE)"
            if reader.get("name") == "table"
            else "the model was not trained with a table; give arrays as in the data store"
        )
        raise UserError(f"{source if isinstance(source, Path) else 'predict'}: {remedy}")
    return encode_rows(source, data.columns, reader, data.inputs[0].dtype)


def _read_samples(data: DataManifest, source: Path, trust: bool) -> tuple[Inputs, pd.DataFrame]:
    """Return the samples of a file as the data store has them, and its rows: `row` from 1, and columns that the model does not use."""
    options = data.settings["reader"]
    if data.columns or source.name.lower().endswith(TABLE_SUFFIXES):
        features, rows = _encoded(data, source)
        return (features,), rows
    code = [text for key in ("adaptor", "train") if ".py" in (text := str(options.get(key)))]
    if code and not trust:
        raise UserError(
            f"{source}: not read, because that runs {', '.join(code)}; add --trust if you trust its author"
        )
    if is_nnlo_module(options.get("train")):
        options = {**options, **reader_options_of_module(options["train"])}
    arrays = read_inputs(source, [column.name for column in data.inputs], options)
    return model_inputs(data, arrays, str(source)), pd.DataFrame({"row": np.arange(len(arrays[0])) + 1})


@torch.no_grad()
def _predictions(model: EvaluatedModel, inputs: Inputs, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the class and a value for each class, or the predicted numbers."""
    problem = model.run.problem
    if not isinstance(problem, ClassificationConfig | RegressionConfig):
        raise UserError(
            f"problem.name: the outputs of {problem.name} are no table; call nnlo_lib.load_run(FOLDER).predict in Python"
        )
    batches = list(output_batches(model.module, model.tensors, inputs))
    loss = loss_of_output(model.run.loss, batches[0])
    outputs = torch.cat([primary_output(batch) for batch in batches])
    kind, values = output_table(problem, loss, outputs)
    outputs = outputs.reshape(len(outputs), -1).float().cpu()
    for row in (~outputs.isfinite().all(1)).nonzero()[:1, 0]:
        raise UserError(
            f"row {rows['row'].tolist()[int(row)]}: the model's output is NaN or infinite; correct the sample"
        )
    table = pd.DataFrame(index=rows.index)
    if model.classes is None or isinstance(problem, RegressionConfig):
        names = (
            ["predicted"] if outputs.shape[1] == 1 else [f"predicted_{k}" for k in range(outputs.shape[1])]
        )
        return _beside(rows, table.assign(**dict(zip(names, outputs.numpy().T, strict=True))))
    labels = model.class_labels
    chosen = predicted(outputs, decision_threshold(problem, loss))
    table["predicted"] = [labels[k] if k < len(labels) else str(k) for k in chosen.tolist()]
    for k, column in enumerate(values.numpy().T):
        # Outputs without a class, and the single score of two classes, have no name.
        table[f"{kind}_{labels[k] if values.shape[1] == len(labels) else k}"] = column
    return _beside(rows, table)


def _beside(rows: pd.DataFrame, predictions: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the file, such as their identifiers, beside their predictions."""
    return rows.rename(columns={name: f"{name} in the file" for name in predictions if name in rows}).join(
        predictions
    )
