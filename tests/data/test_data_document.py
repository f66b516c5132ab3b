"""The reference page is the code's own, and says something of each argument."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from lpot.data import build_loader
from lpot.data.datasets import DATASETS
from lpot.data.document import arguments, describe, main, page
from lpot.data.filters import FILTERS
from lpot.data.loader import DataLoader
from lpot.data.transforms import TRANSFORMS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "data.md"
ENTRIES = {
    **DATASETS.builtin,
    **TRANSFORMS.builtin,
    **FILTERS.builtin,
    "DataLoader": DataLoader,
}


def test_the_page_is_up_to_date(tmp_path):
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m lpot.data.document"
    main([str(tmp_path / "deep" / "data.md")])
    assert (tmp_path / "deep" / "data.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", ENTRIES)
def test_each_argument_has_a_meaning(name):
    words, meanings = describe(ENTRIES[name])
    assert words.endswith(".")
    assert list(meanings) == [item.name for item in arguments(ENTRIES[name])]


def test_the_python_example_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", page(), flags=re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    runpy.run_path(str(tmp_path / "example.py"))


def test_the_yaml_example_loads(data):
    yaml = pytest.importorskip("ruamel.yaml")
    (example,) = re.findall(r"```yaml\n(.*?)```", page(), flags=re.DOTALL)
    section = yaml.YAML(typ="safe").load(example)["evaluation"]["accuracy"]["dataloader"]
    folder = data / "imagenet-samples"
    section["dataset"]["ImagenetRaw"] = {
        "data_path": str(folder / "images"),
        "image_list": str(folder / "val_map.txt"),
    }
    images, labels = next(iter(build_loader(section)))
    assert images.shape == (32, 3, 224, 224) and labels.shape == (32,)
