"""Samplers, shuffling, augmentation and prefetching of mini-batches."""
