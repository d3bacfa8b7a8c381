"""Read an experiment file into a checked Experiment."""
