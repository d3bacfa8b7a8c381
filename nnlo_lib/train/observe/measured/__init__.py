"""Measurements of a training that `observe` requests: arrays of validations, and the moving average of the loss."""
