"""Hyper-parameter search: space, samplers, pruners and the study. It only decides; the executors train."""
