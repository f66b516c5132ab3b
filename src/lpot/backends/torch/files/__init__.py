"""Files: what is saved and read back, the original's checkpoints, exports to other runtimes."""
