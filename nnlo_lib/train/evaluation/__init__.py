"""Validation, history, best weights and early stopping."""
