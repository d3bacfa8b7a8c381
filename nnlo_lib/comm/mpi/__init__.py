"""The communicator on real MPI ranks."""
