"""Post-training quantization without a framework: each algorithm once, over small adapters."""
