"""The user's wishes, from yaml, dict or Python, as one frozen Config."""

from lpot.config.availability import unavailable
from lpot.config.editor import json_schema
from lpot.config.identity import identity
from lpot.config.load import load, override
from lpot.config.mistakes import ConfigMistakes
from lpot.config.read import ConfigFileMissing
from lpot.config.schema import Config

__all__ = [
    "Config",
    "ConfigFileMissing",
    "ConfigMistakes",
    "identity",
    "json_schema",
    "load",
    "override",
    "unavailable",
]
