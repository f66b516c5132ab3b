"""Door: the original's place for the yaml's reader."""
