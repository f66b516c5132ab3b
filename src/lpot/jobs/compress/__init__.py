"""Pruning and distillation as jobs: sensitivity, cuts, fine-tuning, INT8, under one bar."""
