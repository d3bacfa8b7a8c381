"""Launch the ranks of one training, supervise them, and record why they ended."""
