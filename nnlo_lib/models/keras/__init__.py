"""Networks described by Keras model files."""
