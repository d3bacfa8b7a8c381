"""Simulated lidar: floor plans, paths of robots, and scans of the occupied space."""
