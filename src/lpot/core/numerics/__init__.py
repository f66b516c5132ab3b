"""Quantization arithmetic, ranges and bounds: numpy, one copy for all frameworks."""
