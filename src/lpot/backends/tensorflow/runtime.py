"""TensorFlow itself, imported with its oneDNN kernels switched on.

Every module of this backend takes `tf` from here: the switch is set before the first import.
"""

from __future__ import annotations

import logging
import os
import sys

SWITCH = "TF_ENABLE_ONEDNN_OPTS"

logger = logging.getLogger(__name__)


def switch_onednn() -> None:
    """An honest FP32 baseline and fast INT8 both need oneDNN, which TensorFlow reads once."""
    chosen = os.environ.get(SWITCH)
    if chosen is not None:
        if chosen.strip().lower() in ("0", "false"):
            logger.warning(
                "%s=%s: oneDNN is off, INT8 is correct but slower; leave it unset", SWITCH, chosen
            )
        return
    if "tensorflow" in sys.modules:
        if has_onednn():
            return
        logger.warning(
            "tensorflow was imported before lpot could set %s=1, and its oneDNN kernels are off: "
            "import lpot first, or set it in the environment, for full speed",
            SWITCH,
        )
        return
    os.environ[SWITCH] = "1"


def has_onednn() -> bool:
    """Are the kernels on in a TensorFlow that is imported already? On newer CPUs they are."""
    from tensorflow.python.util import _pywrap_util_port

    return bool(_pywrap_util_port.IsMklEnabled())


switch_onednn()

import tensorflow as tf  # noqa: E402 - after the switch

v1 = tf.compat.v1
GraphDef = v1.GraphDef
NodeDef = v1.NodeDef

__all__ = ["SWITCH", "GraphDef", "NodeDef", "switch_onednn", "tf", "v1"]
