"""Readers of data sets: each converts original files to samples, unit by unit.

Readers of users import these names from here.
"""

from nnlo_lib.data.readers.base import ConversionUnit as ConversionUnit
from nnlo_lib.data.readers.base import DatasetContents as DatasetContents
from nnlo_lib.data.readers.base import SampleBlock as SampleBlock
from nnlo_lib.data.readers.base import contents_of_arrays as contents_of_arrays
