"""Evaluation of trained models without training."""
