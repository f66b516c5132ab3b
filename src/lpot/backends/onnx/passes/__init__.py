"""Rewrites of a Graph, one a file: each takes a Graph and gives another, nothing in place."""
