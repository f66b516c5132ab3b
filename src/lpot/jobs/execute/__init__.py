"""Where trials run: in this process, in others, on a Ray cluster."""
