"""Files of a search's `state/` by which the ranks of an allocation and their launcher tell each other."""

OUTCOME = "outcome.json"  # rank 0: how it ended
NO_BLOCK = 3  # its status where there is work, and no block left to do it
STOPPING = "stop"  # the launcher: all are to save and stop
PULSE = "pulse"  # leaders of blocks: a folder of files that they touch every few seconds
