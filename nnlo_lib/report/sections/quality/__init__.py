"""The sections on the results of the runs: quality, differences, predictions, nodes."""
