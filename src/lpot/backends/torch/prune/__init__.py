"""Structured pruning of torch modules: which channels belong together, and their removal."""
