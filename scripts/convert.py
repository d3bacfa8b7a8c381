"""Convert a fetched data set: python scripts/convert.py --dataset mnist --raw data/mnist/raw --target data/mnist/hdf5"""

import sys

from nnlo_lib.cli import main

if __name__ == "__main__":
    main(["task", "convert", *sys.argv[1:]])
