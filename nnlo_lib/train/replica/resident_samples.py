"""Training samples that stay in the memory of a rank's device, and their augmentation there: `data.placement: device`.

A batch then costs the copies of a few numbers per sample, instead of the samples themselves. The random draws and the
resulting bits are the same as on the host.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import size_text
from nnlo_lib.data.loading.augment import Augment, Draws, Mixture
from nnlo_lib.data.readers.base import Indices
from nnlo_lib.data.store.split import Split
from nnlo_lib.train.replica.device import to_device

COPY_BYTES = 64 << 20  # bounds the memory on the host while the samples are copied
# Types of the bits of values, by size in bytes: torch has few operations for unsigned integers.
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ResidentSamples:
    """The `samples` of a split, by their indices (n,), as tensors on a device, in the stored dtype.

    Raises UserError if the samples are larger than the free memory of the GPU.
    """

    sample_bytes = 0  # none is read from the host: a GPU gathers a batch while this process continues

    def __init__(self, split: Split, samples: Indices, device: str) -> None:
        self._samples, self._device = np.sort(samples), device
        labels = split.targets[self._samples]
        size = len(samples) * split.sample_bytes + labels.nbytes
        free = size if device == "cpu" else torch.cuda.mem_get_info(device)[0]
        if size > free:
            raise UserError(
                f"data.placement: the {len(samples):,} training samples of a rank have {size_text(size)}, but "
                f"{size_text(free)} of {device} are free; set data.placement: host, use a GPU with more memory, or "
                "lower parallel.ranks_per_gpu"
            )
        self._labels = to_device(labels, device)
        self._inputs = tuple(
            torch.empty((len(samples), *each.shape), dtype=torch.from_numpy(np.empty(0, each.dtype)).dtype, device=device)
            for each in split.columns
        )  # fmt: skip
        step = max(1, COPY_BYTES // max(split.sample_bytes, 1))
        for start in range(0, len(samples), step):
            arrays, _ = split.take(self._samples[start : start + step])
            for memory, array in zip(self._inputs, arrays, strict=True):
                memory[start : start + step] = torch.from_numpy(array)

    def take(self, indices: Indices) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return new tensors of the inputs, (len(indices), *shape) each, and of the labels (len(indices), ...)."""
        places = to_device(self._samples.searchsorted(indices), self._device)
        return tuple(each[places] for each in self._inputs), self._labels[places]


class ResidentAugment(Augment):
    """Augments images on their device by one gather, to the bits of Augment."""

    def _changed(self, images: Any, draws: Draws) -> Any:
        height, width = images.shape[2:]
        places = to_device(np.concatenate(self.places(draws, height, width), axis=1), str(images.device))
        cut = self.crop or height
        rows, columns = places[:, None, :cut, None], places[:, None, None, cut:]
        count, channels = (torch.arange(size, device=images.device) for size in images.shape[:2])
        bits = images.view(BITS[images.element_size()])
        # The place -1 of a zero is valid for torch: the last row or column.
        changed = bits[count[:, None, None, None], channels[:, None, None], rows, columns]
        if self.pad or self.window:
            changed.masked_fill_((rows < 0) | (columns < 0), 0)
        return changed.view(images.dtype)


class ResidentMixture(Mixture):
    """Mixes samples on their device, to the bits of Mixture."""

    def _numbers(self, array: Tensor) -> Tensor:
        return array.to(torch.float64 if array.dtype == torch.float64 else torch.float32)

    def _placed(self, values: Any, beside: Tensor) -> Tensor:
        return to_device(values, str(beside.device))
