"""Recomputation of the figures of a report page from raw files, without code of `nnlo_lib`."""
