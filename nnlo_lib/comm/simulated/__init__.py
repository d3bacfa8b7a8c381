"""The communicator of simulated ranks in one process, on a virtual clock."""
