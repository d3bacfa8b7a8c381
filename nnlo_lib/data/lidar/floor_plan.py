"""Walls of a building on a grid of pixels: from an image, or a floor plan drawn from a seed.

A drawn floor plan has rooms on both sides of a corridor, connected by doors.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from nnlo_lib.core.errors import UserError

Grid = npt.NDArray[np.bool_]  # (height, width), True where a wall is
Points = npt.NDArray[np.float64]  # (..., 2): x to the right, y downwards, in pixels


@dataclass(frozen=True)
class Occupancy:
    """Walls on a grid; pixel (x, y) covers x - 1/2 .. x + 1/2."""

    walls: Grid  # (height, width), True where a wall is
    name: str

    @classmethod
    def from_image(cls, path: Path, threshold: float, dark_walls: bool, border: int) -> "Occupancy":
        """Return the walls in an image. Raises UserError if it is no image, or has no wall or no free space.

        What is transparent counts as white; numbers above 255 are of 16 bits, and those up to 1 fractions.
        """
        try:
            with Image.open(path) as image:
                brightness = _brightness(image)
        except Image.DecompressionBombError as error:
            raise UserError(f"{path}: the image is too large ({error}); use one with fewer pixels") from error
        except OSError as error:
            why = error.strerror or error
            raise UserError(f"{path}: cannot be read as an image ({why}); use a PNG or JPEG file") from error
        walls = brightness < threshold if dark_walls else brightness >= threshold
        if border:
            walls[:border] = walls[-border:] = walls[:, :border] = walls[:, -border:] = True
        if walls.all() or not walls.any():
            raise UserError(
                f"{path}: no pixel is {'free space' if walls.all() else 'wall'} with threshold {threshold:g}, "
                f"{'dark' if dark_walls else 'bright'} walls and a border of {border} pixels; "
                "change data.reader.threshold, dark_walls or border"
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


def _brightness(image: Image.Image) -> npt.NDArray[np.float64]:
    """Return the brightness of each pixel, from 0 to 1, (height, width)."""
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image, np.float64)
        return values / next((top for top in (1, 255) if values.max() <= top), 65535)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("L"), np.float64) / 255


def floor_plan(seed: int, width: int, height: int, room: int) -> Grid:
    """Return a floor plan whose free space is connected, (height, width).

    `width` and `height` are in pixels, like `room`, the smallest side of a room. Doors and the corridor are half as
    wide as this side, walls an eighth.
    """
    wall, half = max(2, room // 8), max(4, room // 2)
    plan = FloorPlan(
        np.zeros((height, width), np.bool_), np.random.default_rng(seed), wall=wall, door=half, room=room
    )
    plan.walls[:wall] = plan.walls[-wall:] = plan.walls[:, :wall] = plan.walls[:, -wall:] = True
    inside = slice(wall, width - wall)
    middle = (height - half) // 2 - wall
    lower = middle + wall + half
    doors = max(1, (width - 2 * wall) // (4 * room))
    plan.add_wall(slice(middle, middle + wall), inside, doors)
    plan.add_wall(slice(lower, lower + wall), inside, doors)
    plan.divide(wall, middle, wall, width - wall)
    plan.divide(lower + wall, height - wall, wall, width - wall)
    return plan.walls


@dataclass
class FloorPlan:
    """A floor plan under construction."""

    walls: Grid
    draw: np.random.Generator
    wall: int
    door: int
    room: int
    doors: Grid = field(init=False)  # pixels of doors, which no wall may touch

    def __post_init__(self) -> None:
        self.doors = np.zeros_like(self.walls)

    def divide(self, top: int, bottom: int, left: int, right: int) -> None:
        """Divide the free rows top..bottom-1 and columns left..right-1 into rooms, until no side has room for two."""
        across = bottom - top >= right - left  # a wall along the rows divides the longer side
        low, high = (top, bottom) if across else (left, right)
        first, last = (left, right) if across else (top, bottom)
        doors = self.doors if across else self.doors.T
        # The places along the other axis where no end of the wall is at a door of another wall.
        at_door = doors[:, max(first - 1, 0)] | doors[:, min(last, doors.shape[1] - 1)]
        places = [
            place
            for place in range(low + self.room, high - self.room - self.wall + 1)
            if not at_door[place : place + self.wall].any()
        ]
        if not places:
            return
        place = int(self.draw.choice(places))
        if across:
            self.add_wall(slice(place, place + self.wall), slice(left, right), doors=1)
            self.divide(top, place, left, right)
            self.divide(place + self.wall, bottom, left, right)
        else:
            self.add_wall(slice(top, bottom), slice(place, place + self.wall), doors=1)
            self.divide(top, bottom, left, place)
            self.divide(top, bottom, place + self.wall, right)

    def add_wall(self, rows: slice, columns: slice, doors: int) -> None:
        """Draw a wall, and cut `doors` doors into equal parts of its length."""
        self.walls[rows, columns] = True
        along = columns if columns.stop - columns.start > rows.stop - rows.start else rows
        for part in np.array_split(np.arange(along.start, along.stop), doors):
            start = int(part[0] + self.draw.integers(0, max(1, len(part) - self.door + 1)))
            gap = slice(start, min(start + self.door, int(part[-1]) + 1))
            opening = (rows, gap) if along is columns else (gap, columns)
            self.walls[opening] = False
            self.doors[opening] = True
