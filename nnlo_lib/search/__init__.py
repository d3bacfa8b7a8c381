"""Hyperparameter search: space, samplers, pruners and the study. The fold tasks run in nnlo_lib.executors."""
