"""A rank's replica: flat vectors, gradients, preprocessing, precision, devices."""
