"""Models timed against each other, each in a process of its own."""
