"""Which runtime a model is tuned for: another one than its framework's own, or the fastest here."""
