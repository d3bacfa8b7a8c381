"""Looking inside a training: layers, traces, monitors, profiles, event files. Nothing here changes a bit of it."""
