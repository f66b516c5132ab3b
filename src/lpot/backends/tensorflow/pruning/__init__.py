"""Structured pruning of Keras models: which channels belong together, and their removal."""
