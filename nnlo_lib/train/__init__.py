"""Training on one rank: data, replica, optimizer, evaluation and observation."""
