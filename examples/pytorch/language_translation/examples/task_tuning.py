"""What both scripts do around tuning: a history for each task, the INT8 model, the verdict."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from task_arguments import write_results
from task_model import INT8

logger = logging.getLogger(__name__)

# What of the arguments decides the score of a model.
EVALUATION = (
    "task_name", "model_type", "max_seq_length", "max_eval_samples", "do_lower_case", "doc_stride",
    "max_query_length", "max_answer_length", "n_best_size",
)  # fmt: skip


def keep_apart(args: argparse.Namespace, quantizer: Any, data: bytes) -> None:
    """A workspace for this evaluation alone, unless the yaml names one: what eval_func looks at is
    hidden from lpot, and scores of other data must not be taken for this data's."""
    if quantizer.config.tuning.workspace.path:
        return
    facts = {name: getattr(args, name, None) for name in EVALUATION}
    key = hashlib.sha256(json.dumps(facts).encode() + data).hexdigest()[:8]
    name = f"{quantizer.config.model.name}_{args.task_name.lower()}_{key}"
    workspace = {"path": str(Path("lpot_workspace") / "pytorch" / name)}
    config = quantizer.config
    changed = config.tuning.workspace.model_copy(update=workspace)
    tuning = config.tuning.model_copy(update={"workspace": changed})
    quantizer.config = config.model_copy(update={"tuning": tuning})


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
