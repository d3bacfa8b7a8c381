"""Comparison of trials that have different folds: effects and noise of the folds, and the test that prunes."""
