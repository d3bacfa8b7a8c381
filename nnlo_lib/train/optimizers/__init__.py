"""Optimizers on flat vectors and learning-rate schedules."""
