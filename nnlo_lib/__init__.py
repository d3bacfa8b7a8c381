"""Neural network learning and optimization: distributed training as one reproducible workflow."""
