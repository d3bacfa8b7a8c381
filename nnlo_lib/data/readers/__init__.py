"""Readers of data sets: each converts original files to samples, unit by unit."""

from nnlo_lib.data.readers.base import DatasetContents as DatasetContents
from nnlo_lib.data.readers.base import contents_of_arrays as contents_of_arrays
