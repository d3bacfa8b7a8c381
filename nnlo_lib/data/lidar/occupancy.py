"""The walls of a building on a grid of pixels, and the coordinates of the grid."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.lidar.floor_plan import Grid

Points = npt.NDArray[np.float64]  # (..., 2): x to the right, y downwards, in pixels


@dataclass(frozen=True)
class Occupancy:
    """Walls on a grid; pixel (x, y) covers x - 1/2 .. x + 1/2.

    Attributes:
        walls: (height, width), True where a wall is.
        name: file or seed, for errors.
    """

    walls: Grid
    name: str

    @classmethod
    def from_image(cls, path: Path, threshold: float, dark_walls: bool, border: int) -> "Occupancy":
        """Return the walls in an image.

        Args:
            path: image file.
            threshold: brightness from 0 to 1 that separates walls and free space.
            dark_walls: whether walls are darker than the threshold.
            border: pixels at each side that are walls.

        Raises:
            UserError: if the file is no image, or has no wall or no free space.
        """
        try:
            with Image.open(path) as image:
                brightness = np.asarray(image.convert("L"), np.float64) / 255
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise UserError(
                f"{path}: cannot be read as an image ({error}); use a PNG or JPEG file"
            ) from error
        walls = brightness < threshold if dark_walls else brightness >= threshold
        if border:
            walls[:border] = walls[-border:] = walls[:, :border] = walls[:, -border:] = True
        if walls.all() or not walls.any():
            kind = "free space" if walls.all() else "wall"
            raise UserError(
                f"{path}: no pixel is {kind} with threshold {threshold:g} and {'dark' if dark_walls else 'bright'} walls; "
                "change data.reader.threshold or data.reader.dark_walls"
            )
        return cls(walls, str(path))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.walls.shape[1], self.walls.shape[0]

    @cached_property
    def _center(self) -> Points:
        return (np.array(self.size) - 1) / 2

    @cached_property
    def _framed(self) -> Grid:
        """Walls with a frame of one pixel, flat: no point is outside of the frame."""
        return np.pad(self.walls, 1, constant_values=True).reshape(-1)

    def is_wall(self, points: Points) -> npt.NDArray[np.bool_]:
        """Return whether the pixel nearest to each point is a wall; points outside are in a wall."""
        return self.is_wall_at(points[..., 0], points[..., 1])

    def is_wall_at(self, x: Points, y: Points) -> npt.NDArray[np.bool_]:
        """Return whether the pixel nearest to (x, y) is a wall."""
        width, height = self.size
        columns, rows = np.rint(x), np.rint(y)
        np.clip(columns, -1, width, out=columns)
        np.clip(rows, -1, height, out=rows)
        rows *= width + 2
        rows += columns
        # The first pixel of the frame is at (-1, -1).
        found: npt.NDArray[np.bool_] = self._framed.take(rows.astype(np.intp) + (width + 3))
        return found

    def normalized(self, points: Points) -> npt.NDArray[np.float32]:
        """Return coordinates in which the longer side reaches from -1 to 1."""
        return ((points - self._center) / (max(self.size) / 2)).astype(np.float32)

    def from_relative(self, points: Any) -> Points:
        """Return pixels of coordinates in which both sides reach from -1 to 1, as in DiNNO's waypoints."""
        pixels: Points = np.asarray(points, np.float64) * np.array(self.size) / 2 + self._center
        return pixels
