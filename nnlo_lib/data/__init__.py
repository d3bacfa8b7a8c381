"""From the original files of a data set to mini-batches."""
