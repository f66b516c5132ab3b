"""Door: `lpot.conf.config`. Every component takes the path, a dict, or what `Conf` gives."""

from __future__ import annotations

from typing import Any

from lpot.config.schema import Config
from lpot.jobs.settings import read_config


def Conf(cfg_fname: Any) -> Config:
    """The yaml, read and checked; hand it to Quantization or Benchmark in place of the path."""
    return read_config(cfg_fname)


__all__ = ["Conf"]
