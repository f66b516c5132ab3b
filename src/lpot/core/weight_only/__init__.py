"""Rounding weights alone, to 2, 3, 4 or 8 bits in groups: numpy, for every framework."""
