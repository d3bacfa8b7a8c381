"""Translate DiNNO's study files."""
