"""Rendering: terminal, and later html. The data come from core; nothing is computed here."""

import random

_before = random.getstate()
import rich.style  # noqa: E402, F401

# rich draws a number when it is imported: the user's own sequence must go on undisturbed.
random.setstate(_before)
