"""Predictions for new samples: rows or arrays of the user, checked and prepared as in the training, and a table of the results."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from nnlo_lib.config.base import ConfigModel, default
from nnlo_lib.config.problem import ClassificationConfig, RegressionConfig
from nnlo_lib.config.reader import FolderReaderConfig, TFRecordReaderConfig
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.readers.array_source import read_inputs
from nnlo_lib.data.readers.base import Array, Inputs
from nnlo_lib.data.readers.folder import read_images
from nnlo_lib.data.readers.splits import IMAGE_SUFFIXES, ImageFolder, Skipped
from nnlo_lib.data.readers.table import encode_rows
from nnlo_lib.data.readers.table_file import PARQUET_SUFFIXES, TABLE_SUFFIXES, saved_dataset_files
from nnlo_lib.data.readers.user_reader import is_nnlo_module, reader_options_of_module
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store_settings import StoreSettings
from nnlo_lib.problems.losses import decision_threshold, output_table, predicted
from nnlo_lib.problems.supervised import loss_of_output, primary_output
from nnlo_lib.train.evaluation.evaluate import EVALUATION_BATCH_SIZE, output_batches
from nnlo_lib.workflow.model_evaluation import (
    EvaluatedModel,
    EvaluationRequest,
    load_evaluated_model,
    refuse_published_output,
)
from nnlo_lib.workflow.trained_run import run_or_best

IMAGE_READERS: dict[str, type[ConfigModel]] = {"folder": FolderReaderConfig, "tfrecord": TFRecordReaderConfig}
Samples = tuple[Inputs, pd.DataFrame]  # as the data store has them; their numbers, names and other columns
logger = get_logger(__name__)


def predict_file(target: Path, sources: Sequence[Path], output: Path, trust: bool) -> str:
    """Write the predictions for the samples of a file, or of images; return a sentence with their number.

    Args:
        target: folder of a run, or of an experiment, whose best run predicts.
        sources: table in a form that the training can read if it read a table; images and folders of images if it read such;
            else NPZ, NPY or HDF5 with the inputs.
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
    for source in sources:
        if not source.exists():
            raise UserError(f"{source}: no such file; name the file of the samples")
        if output.exists() and output.samefile(source):
            raise UserError(f"--output: {output} is the file of the samples; name a new file")
    refuse_published_output(output)
    model = load_evaluated_model(EvaluationRequest(run_or_best(target), trust=trust))
    samples = (
        _images(model.data, sources) if _are_images(sources) else _read_samples(model.data, sources, trust)
    )
    table = pd.concat([_predictions(model, *part) for part in samples], ignore_index=True)
    with atomic_write(output) as part:
        table.to_parquet(part) if parquet else table.to_csv(part, index=False, lineterminator="\n")
    shown = str(sources[0]) if len(sources) == 1 else plural(len(sources), "file")
    return f"{output}: {plural(len(table), 'row')} of {shown}, predicted by {model.weights.parent}"


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
            f"(nnlo data --remove {data.folder}), and convert it again: nnlo data FILE"
            if reader.get("name") == "table"
            else "the model was not trained with a table; give arrays as in the data store"
        )
        raise UserError(f"{source if isinstance(source, Path) else 'predict'}: {remedy}")
    return encode_rows(source, data.columns, reader, data.inputs[0].dtype)


def _are_images(sources: Sequence[Path]) -> bool:
    return all(
        source.suffix.lower() in IMAGE_SUFFIXES or (source.is_dir() and not saved_dataset_files(source))
        for source in sources
    )


def image_form(data: DataManifest) -> dict[str, Any]:
    """Return the method of resizing, the size and the colors of the images that the training stored; empty without images."""
    reader = data.settings["reader"]
    kind = IMAGE_READERS.get(StoreSettings(data.dataset, reader=reader).spec.reader)
    if kind is None:
        return {}
    channels, size, _ = data.inputs[0].shape
    return {
        "resize": reader.get("resize", default(kind, "resize")),
        "size": size,
        "colour": "rgb" if channels == 3 else "grey",
    }


def _images(data: DataManifest, sources: Sequence[Path]) -> Iterator[Samples]:
    """Yield the images of files and folders, decoded and resized as in the training, some at a time."""
    form, reader, dtype = image_form(data), data.settings["reader"], np.dtype(data.inputs[0].dtype)
    if not form:
        raise UserError(
            f"{sources[0]}: {'a folder' if sources[0].is_dir() else 'an image'}, but the model was trained with "
            f"{'the reader ' + reader['name'] if reader else data.dataset}; name a file of samples in its form: a table, or an NPZ file "
            "of arrays as in the data store"
        )
    files = list[tuple[Path, str]]()
    for source in sources:
        found = sorted(ImageFolder(source).images_below("", Skipped())) if source.is_dir() else [str(source)]
        files += ((source / file if source.is_dir() else source, file) for file in found)
        if not found:
            raise UserError(f"{source}: no image found ({' '.join(IMAGE_SUFFIXES)}); name another folder")
    for start in range(0, len(files), EVALUATION_BATCH_SIZE):
        numbers = range(start, min(len(files), start + EVALUATION_BATCH_SIZE))
        paths = [(str(files[number][0]), number) for number in numbers]
        block = read_images(Path(), paths, **form, skip=True, dtype=dtype)
        for text in block.skipped:
            if reader.get("on_corrupt") != "skip":
                raise UserError(f"{text}; replace the image, or leave it out")
            logger.warning(f"{text}; the image is left out")
        names = [files[number][1] for number in block.labels]
        yield block.inputs, pd.DataFrame({"row": block.labels + 1, "file": names})


def _read_samples(data: DataManifest, sources: Sequence[Path], trust: bool) -> Iterator[Samples]:
    """Yield the samples of a file, and its rows: `row` from 1, and columns that the model does not use."""
    if len(sources) > 1:
        raise UserError(f"{sources[1]}: only images may be several files; predict one file after the other")
    source, options = sources[0], data.settings["reader"]
    if data.columns or source.name.lower().endswith(TABLE_SUFFIXES):
        features, rows = _encoded(data, source)
        yield (features,), rows
        return
    code = [text for key in ("adaptor", "train") if ".py" in (text := str(options.get(key)))]
    if code and not trust:
        raise UserError(
            f"{source}: not read, because that runs {', '.join(code)}; add --trust if you trust its author"
        )
    if is_nnlo_module(options.get("train")):
        options = {**options, **reader_options_of_module(options["train"])}
    arrays = read_inputs(source, [column.name for column in data.inputs], options)
    yield model_inputs(data, arrays, str(source)), pd.DataFrame({"row": np.arange(len(arrays[0])) + 1})


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
