"""Many models × goals × targets as one job."""
