"""The page in docs is the one the code makes."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

from lpot.metric import METRICS
from lpot.metric.document import main, page

FILE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_page_is_up_to_date():
    assert FILE.read_text(encoding="utf-8") == page(), (
        "run: python -m lpot.metric.document docs/metrics.md"
    )


def test_page_has_every_metric_option_and_example():
    text = page()
    for name, cls in METRICS.items():
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        for option in inspect.signature(cls).parameters:
            assert f"`{option}`" in section
        assert f"import {cls.__name__}\n" in section and "update(" in section


def test_examples_run():
    outcome = doctest.testfile(str(FILE), module_relative=False)
    assert outcome.attempted > 3 * len(METRICS) and outcome.failed == 0


def test_command(tmp_path):
    target = tmp_path / "page.md"
    assert main([str(target)]) == 0
    assert target.read_text(encoding="utf-8") == page()
    done = subprocess.run(
        [sys.executable, "-m", "lpot.metric.document"], capture_output=True, text=True, check=True
    )
    assert done.stdout == page()
