"""Rendering: terminal, and later html. The data come from core; nothing is computed here."""
