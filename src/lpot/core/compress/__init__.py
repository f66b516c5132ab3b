"""Pruning and distillation: the parts that know no framework."""
