"""A rank's model and what it computes with: flat vectors, gradients, precision, devices."""
