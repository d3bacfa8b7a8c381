"""Splits of samples between training and validation and between workers."""
