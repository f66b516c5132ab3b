"""Writes the reference page of all metrics from the code: `python -m lpot.metric.document`."""

from __future__ import annotations

import doctest
import inspect
import sys
from pathlib import Path

from lpot.metric.base import BaseMetric
from lpot.metric.registry import METRICS
from lpot.metric.weighted import WeightedMetrics

HEAD = """# Metrics

Generated from the code by `python -m lpot.metric.document docs/metrics.md`; a test checks it.

In yaml, a metric goes under `evaluation.accuracy.metric` as `name: {option: value}`; a single
value sets the first option (`topk: 5`). In Python: `lpot.metric.get_metric("topk", k=5)`. Each has
`update(preds, labels)`, `reset()` and `result()`, and takes numpy arrays, lists and tensors of any
framework; `details` has all the figures it computes. "Mean" marks metrics that are a mean over
samples: their evaluation stops as soon as the bar is out of reach.

| name | better | mean | range |
|---|---|---|---|
"""


def page() -> str:
    """The whole page as markdown."""
    rows = "".join(_row(name, cls) for name, cls in METRICS.items())
    parts = [_section(name, cls) for name, cls in METRICS.items()]
    return HEAD + rows + "\n" + "\n".join([*parts, _section("multi_metrics", WeightedMetrics)])


def _row(name: str, cls: type[BaseMetric]) -> str:
    low, high = cls.bounds
    better = "higher" if cls.higher_is_better else "lower"
    mean = "yes" if cls.is_mean is True else ""
    return f"| [{name}](#{name.lower()}) | {better} | {mean} | {low:g} to {high:g} |\n"


def _section(name: str, cls: type[BaseMetric]) -> str:
    text = inspect.getdoc(cls) or ""
    words = text.split(">>>")[0].strip()
    lines = [f"## {name}", "", words, ""]
    options = _options(cls)
    if options:
        lines += ["| option | type | default |", "|---|---|---|", *options, ""]
    examples = doctest.DocTestParser().get_examples(text)
    if examples:
        lines += ["```pycon", f">>> from {cls.__module__} import {cls.__name__}"]
        for one in examples:
            lines += [f">>> {one.source.rstrip()}", *([one.want.rstrip()] if one.want else [])]
        lines += ["", "```", ""]  # a blank line ends the output for doctest
    return "\n".join(lines)


def _options(cls: type[BaseMetric]) -> list[str]:
    rows = []
    for option in inspect.signature(cls).parameters.values():
        kind = str(option.annotation).replace("|", "\\|")
        needed = option.default is inspect.Parameter.empty
        rows.append(
            f"| `{option.name}` | {kind} | {'required' if needed else f'`{option.default!r}`'} |"
        )
    return rows


def main(arguments: list[str]) -> int:
    """Write the page to the file named, or to standard output."""
    if arguments:
        Path(arguments[0]).write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
