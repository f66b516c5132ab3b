"""Listeners for `lpot.tune(..., listener=...)`: what they hear, and those that come with lpot."""

from __future__ import annotations

from lpot.core.progress import Chorus, Listener
from lpot.jobs.callbacks.aside import Aside
from lpot.jobs.callbacks.mlflow import MlflowListener
from lpot.jobs.callbacks.tensorboard import TensorboardListener

__all__ = ["Aside", "Chorus", "Listener", "MlflowListener", "TensorboardListener"]
