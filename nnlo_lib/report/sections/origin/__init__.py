"""The sections on where the results come from: settings, models, weights, software."""
