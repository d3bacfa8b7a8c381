"""Files of PyDTNN's data sets, and its synthetic data."""

import os
from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.options import ParsedOptions

IMAGENET_SIDE = 227
CROPPED_SIDE = 224
PATHS = ("dataset_train_path", "dataset_test_path")
# Shape, classes, training and test samples. PyDTNN keeps no synthetic ImageNet in files, so nnlo stores fewer samples.
SYNTHETIC: dict[str, dict[str, Any]] = {
    "mnist": {"shape": [1, 28, 28], "classes": 10, "samples": 60_000, "test_samples": 10_000},
    "cifar10": {"shape": [3, 32, 32], "classes": 10, "samples": 50_000, "test_samples": 10_000},
    "imagenet": {"shape": [3, 227, 227], "classes": 1000, "samples": 10_000, "test_samples": 1_000},
}


def set_files(draft: ExperimentDraft, options: ParsedOptions) -> None:
    """Set the source and the reader of the data: files of the command's folders, or synthetic samples."""
    paths = [name for name in PATHS if name in options]
    if options["use_synthetic_data"] and options["dataset"] in SYNTHETIC:
        _set_synthetic(draft, options, paths)
    elif options["dataset"] == "imagenet":
        _set_imagenet(draft, options, paths)
    elif paths:
        draft.set("data.source", options[paths[0]], options.as_written(*paths))
        if len({options[name] for name in paths}) > 1:
            draft.add_untranslatable(
                options.as_written("dataset_test_path"),
                "nnlo reads all files of this data set from one folder, data.source",
            )


def _set_synthetic(draft: ExperimentDraft, options: ParsedOptions, paths: list[str]) -> None:
    """Set zeros of the size of the command's data set.

    Args:
        draft: receives the settings.
        options: options of the command.
        paths: options that name a folder.
    """
    source = options.as_written("use_synthetic_data")
    reader = {"name": "synthetic", "content": "zeros", **SYNTHETIC[options["dataset"]]}
    draft.override("data.dataset", "synthetic", f"{options.as_written('dataset')} {source}")
    draft.set("data.reader", reader, source)
    draft.remarks.append(f"{source}: content: classes gives samples that a model can learn")
    if options["dataset"] == "imagenet":
        draft.remarks.append(
            f"{source}: nnlo stores the samples, so that samples is 10,000 instead of 1,281,167"
        )
    draft.ineffective += [f"{options.as_written(name)} (with {source})" for name in paths]


def _set_imagenet(draft: ExperimentDraft, options: ParsedOptions, paths: list[str]) -> None:
    """Set the files that PyDTNN's converter writes: x (samples, 3, 227, 227), y (samples, 1) with classes from 1.

    Without a folder, the data set stays the TFRecords of the catalog.

    Args:
        draft: receives the settings.
        options: options of the command.
        paths: options that name a folder.
    """
    draft.remarks.append(
        "imagenet: PyDTNN subtracts mean colors in BGR order; nnlo normalizes as set by data.normalize"
    )
    if "alexnet" not in options["model"]:
        draft.set("data.crop", CROPPED_SIDE, f"PyDTNN crops {IMAGENET_SIDE} pixels to {CROPPED_SIDE}")
        draft.remarks.append(
            "data.crop: PyDTNN always takes the same window; nnlo takes random windows in training"
        )
    if "dataset_train_path" not in options:
        if paths:
            draft.add_untranslatable(
                options.as_written(*paths), "the folder of the training files is missing"
            )
        return
    train = options["dataset_train_path"]
    reader = {"name": "arrays", "train": "*.npz", "features": "x", "labels": "y", "first_class": 1}
    if "dataset_test_path" in options and options["dataset_test_path"] != train:
        reader["test"] = f"{os.path.relpath(options['dataset_test_path'], train)}/*.npz"
    draft.override("data.dataset", "imagenet-npz", "name for PyDTNN's NPZ files of ImageNet")
    draft.set("data.source", os.path.normpath(train), options.as_written("dataset_train_path"))
    draft.set("data.reader", reader, options.as_written(*paths))
