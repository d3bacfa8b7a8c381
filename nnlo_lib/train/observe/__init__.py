"""Observers: layer tables, traces, monitors, profiles, event files; they never change results."""
