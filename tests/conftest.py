"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# Examples are never timed: on a busy machine, or an emulated CPU, a correct one takes seconds.
settings.register_profile("lpot", deadline=None)
settings.load_profile("lpot")
