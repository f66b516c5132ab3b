"""What a tuning gives back, as plain values."""
