"""Training with rounding in it, loops that a yaml describes, and second derivatives."""
