"""Functions that a forward calls with its own weights, made layers."""
