"""Models by name, from Python files, from Keras and from TorchScript."""
