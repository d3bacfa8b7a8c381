"""One module per `nnlo` command: with its help text, its arguments and its function `run`."""
