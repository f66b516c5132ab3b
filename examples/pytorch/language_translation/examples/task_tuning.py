"""What both scripts do after tuning: the INT8 model beside the checkpoint, and the verdict."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from task_arguments import write_results
from task_model import INT8

logger = logging.getLogger(__name__)


def keep_tuned(args: argparse.Namespace, quantizer: Any, results: dict[float, Any]) -> Path:
    """Save the tuned model in `<output_dir>/int8`; the FP32 checkpoint stays as it is."""
    result = quantizer.result
    folder: Path = result.model.save(Path(args.output_dir) / INT8)
    found = dict(results.get(result.accuracy, {}))
    found |= {"fp32": result.baseline.accuracy, "int8": result.accuracy}
    found |= {"evaluations": result.evaluations, "bar_held": bool(result.met)}
    if result.speed is not None:
        found["times_faster"] = round(result.speed, 3)
    write_results(folder, found)
    logger.info("INT8 model in %s; the tuning's report in %s", folder, result.workspace)
    return folder
