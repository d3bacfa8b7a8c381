"""Machines of a search: its fold tasks over time, utilization of the capacity, and hosts."""
