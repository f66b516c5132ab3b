"""Scoring a model: the user's function, or a loader and a metric; racing."""
