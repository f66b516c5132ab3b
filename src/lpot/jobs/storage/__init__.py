"""Workspaces that lie elsewhere: object stores, by any URL that fsspec knows."""
