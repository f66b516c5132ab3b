"""Decoders: text in, phases timed apart, weights in few bits out."""
