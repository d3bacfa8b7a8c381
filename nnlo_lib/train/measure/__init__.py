"""What a training has learned: validation, the books, the best model, and whether it is over."""
