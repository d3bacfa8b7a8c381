"""The executor that trains trials on groups of ranks of one MPI allocation."""
