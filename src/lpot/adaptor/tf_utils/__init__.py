"""Door: the original's place for its TensorFlow functions."""
