"""How a replica moves along its gradient: update rules on flat vectors, and their learning rates."""
