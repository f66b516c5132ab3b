"""Door: `lpot.utils.logger`, the logger under which all of lpot speaks."""

from __future__ import annotations

import logging

logger = logging.getLogger("lpot")
debug = logger.debug
info = logger.info
warning = warn = logger.warning
error = logger.error
fatal = logger.critical

__all__ = ["debug", "error", "fatal", "info", "logger", "warn", "warning"]
