"""Writes the reference page of the data room: `python -m lpot.data.document docs/data.md`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpot.data.datasets import DATASETS
from lpot.data.filters import LabelBalance
from lpot.data.loader import DataLoader
from lpot.data.postprocess import POSTPROCESSES
from lpot.data.transforms import TRANSFORMS

HEAD = """# Data

Generated from the code by `python -m lpot.data.document docs/data.md`; a test checks it.

The names, arguments and numbers are the same for every framework. In yaml:

```yaml
evaluation:
  accuracy:
    dataloader:
      batch_size: 32
      dataset:
        ImagenetRaw: {data_path: /path/to/images, image_list: /path/to/val_map.txt}
      transform:
        Resize: {size: 256, keep_ratio: true}
        CenterCrop: {size: 224}
        ToTensor: {}
        Normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}
```

In Python:

```python
from lpot.data import DataLoader, compose, get_dataset

dataset = get_dataset("dummy", shape=[8, 32, 32, 3], label=True)
for images, labels in DataLoader(dataset, batch_size=4):
    assert images.shape == (4, 32, 32, 3)
```

Images are arrays of height, width, channel unless a transform changes that. Register your own
dataset, transform or filter with `@dataset_registry("name")`,
`@transform_registry("name")` or `@filter_registry("name")`, all in `lpot.data`. Nothing is
downloaded: if files are missing, the error says what is expected where, and how to get it.

Contents: [datasets](#datasets) · [transforms](#transforms) · [postprocessing](#postprocessing) ·
[filters](#filters) · [loaders](#loaders)
"""

ARGUMENT = re.compile(r"^ {4}(\w+): (.*)$")


def page() -> str:
    """The whole page as markdown."""
    return "\n".join(
        [
            HEAD,
            *_chapter("Datasets", DATASETS.builtin),
            *_chapter("Transforms", TRANSFORMS.builtin),
            *_chapter("Postprocessing", POSTPROCESSES.builtin),
            *_chapter("Filters", {"LabelBalance": LabelBalance}),
            *_chapter("Loaders", {"DataLoader": DataLoader}),
        ]
    )


def _chapter(title: str, entries: Mapping[str, Any]) -> list[str]:
    names = sorted(entries, key=str.lower)
    return [f"## {title}", "", *(line for name in names for line in _entry(name, entries[name]))]


def _entry(name: str, entry: Any) -> list[str]:
    words, meanings = describe(entry)
    lines = [f"### {name}", "", words, ""]
    parameters = arguments(entry)
    if parameters:
        lines += ["| argument | default | meaning |", "|---|---|---|"]
        lines += [
            f"| {item.name} | {_default(item)} | {meanings.get(item.name, '').replace('|', '/')} |"
            for item in parameters
        ]
        lines.append("")
    return lines


def arguments(entry: Any) -> list[inspect.Parameter]:
    """The parameters a user can give by name."""
    parameters = inspect.signature(entry).parameters.values()
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def describe(entry: Any) -> tuple[str, dict[str, str]]:
    """What the docstring says: the text, and the meaning of each argument."""
    text = (inspect.getdoc(entry) or "").partition(">>>")[0]
    words, _, rest = text.partition("Args:")
    meanings: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        found = ARGUMENT.match(line)
        if found:
            name = found[1]
            meanings[name] = found[2].strip()
        elif name and line.startswith(" " * 8):
            meanings[name] += f" {line.strip()}"
        elif line.strip():
            name = ""
    return words.strip(), meanings


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return "required"
    if isinstance(parameter.default, tuple):
        shown = ", ".join(f"{item:.4g}" for item in parameter.default)
        return f"`[{shown}]`"
    return f"`{parameter.default!r}`"


def main(arguments: list[str]) -> int:
    target = Path(arguments[0] if arguments else "docs/data.md")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
