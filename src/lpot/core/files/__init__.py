"""What lies on disk: journals, cards, statistics, and how they are written and read safely."""
