"""The framework-free heart: values, the loop, numerics. Read `tune.py` first."""
