"""What a graph holds: nodes, layers, what is folded into them, which channels belong together."""
