"""Hyper-parameter search: space, samplers, pruners and the study; it decides, and trains nothing."""
