"""Rewrites of a frozen graph, one a file: pure functions from Net to Net."""
