"""NNLO (neural network learning and optimization): reproducible distributed training of neural networks."""
