"""Reports written, read again from a workspace, and served while a tuning runs."""
