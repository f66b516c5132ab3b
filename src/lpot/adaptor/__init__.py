"""Door: the original's place for framework adaptors."""
