"""The objects behind the doors: what scripts of the original API set and call."""
