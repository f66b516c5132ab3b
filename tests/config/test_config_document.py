"""The generated files are those the schema gives, and they are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lpot.config import json_schema, load, unavailable
from lpot.config.document import PAGE, TEMPLATE, page
from lpot.config.mistakes import ConfigMistakes
from lpot.config.node import MAX_DEPTH, MAX_NODES
from lpot.config.outline import walk
from lpot.config.schema import Config
from lpot.config.template import template

AGAIN = "run `python -m lpot.config.document` and look at what changed"


def test_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), AGAIN


def test_template_is_fresh() -> None:
    assert TEMPLATE.read_text(encoding="utf-8") == template(), AGAIN


def test_template_loads_and_is_the_default() -> None:
    config = load(TEMPLATE)
    assert config == load()
    assert unavailable(config) == []


def test_template_without_its_marks_is_right_too(tmp_path: Path) -> None:
    """All keys set at once: only those that exclude each other are complained of."""
    lines = (re.sub(r"^(\s*)#(?! \S)", r"\1", line) for line in template().splitlines())
    path = tmp_path / "all.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigMistakes) as info:
        load(path)
    rest = [
        mistake
        for mistake in info.value.mistakes
        if "cannot be combined with" not in mistake.message and "exactly one" not in mistake.message
    ]
    assert rest == []


def test_every_key_is_in_page_and_template() -> None:
    text, yaml = page(), template()
    for key in walk():
        name = key.path[-1]
        assert f"| `{name}` |" in text, key.path
        assert re.search(rf"(^|[ #{{]){re.escape(name)}:", yaml, re.MULTILINE), key.path


def test_every_key_is_described() -> None:
    for key in walk():
        text = key.field.description or ""
        assert text.endswith("."), key.path


def test_examples_of_the_page_run(tmp_path: Path) -> None:
    (yaml,) = re.findall(r"```yaml\n(.*?)```", page(), re.DOTALL)
    path = tmp_path / "page.yaml"
    path.write_text(yaml, encoding="utf-8")
    assert load(path).model.name == "resnet50"
    (code,) = re.findall(r"```python\n(.*?)```", page(), re.DOTALL)
    exec(compile(code, "docs/yaml.md", "exec"), {})


def test_limits_of_the_page_are_true() -> None:
    assert f"deeper than {MAX_DEPTH} levels" in page().replace("\n", " ")
    assert f"{MAX_NODES:,} values".replace(",", " ") in page().replace("\n", " ")


def test_json_schema() -> None:
    schema = json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {*Config.model_fields, "quant_level"}
    tuning = schema["$defs"]["TuningSection"]["properties"]
    assert tuning["metric"]["deprecated"] is True
    assert {"type": "string"} in tuning["strategy"]["anyOf"]
    weight = schema["$defs"]["Weight"]["properties"]["granularity"]
    words = ["per_channel", "per_tensor", "per_group"]
    assert {"enum": words, "type": "string"} in weight["anyOf"]
    for definition in schema["$defs"].values():
        for name, key in definition.get("properties", {}).items():
            # A description equal to that of the section it refers to is left to the section.
            assert "description" in key or "$ref" in key, name


def test_json_schema_accepts_the_template(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    raw = load(TEMPLATE).model_dump(mode="json", exclude_unset=True)
    jsonschema.validate(raw, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"tunning": {}}, json_schema())
    with pytest.raises(jsonschema.ValidationError, match="minimum of 1"):
        jsonschema.validate({"tuning": {"exit_policy": {"max_trials": 0}}}, json_schema())
