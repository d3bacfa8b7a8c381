"""One module per `nnlo` command: its help, its arguments, and the one function that it calls."""
