"""Files that are no good yaml: each is told with its place, none is executed or written to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lpot.config import Config, ConfigFileMissing, load
from lpot.config.node import MAX_DEPTH, MAX_NODES
from lpot.config.read import MAX_BYTES
from lpot.core.errors import ConfigError


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "bert.yaml").write_text("x")
    with pytest.raises(ConfigFileMissing, match=r"brt\.yaml: no such file, did you mean 'bert"):
        load(tmp_path / "brt.yaml")
    with pytest.raises(FileNotFoundError):
        load(str(tmp_path / "no" / "such.yaml"))


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder, expected a yaml file"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["", "   \n\n", "# only a comment\n", "---\n", "null\n"])
def test_empty_file(complaint, text: str) -> None:
    said = complaint(text, model=False)
    assert "conf.yaml: the file is empty" in said
    assert "model: {name: my_model}" in said


@pytest.mark.parametrize(("text", "what"), [("- a\n- b\n", "a list"), ("hello\n", "a string")])
def test_not_a_mapping(complaint, text: str, what: str) -> None:
    said = complaint(text, model=False)
    assert f"conf.yaml:1: the file holds {what}, expected a mapping" in said


def test_binary(complaint) -> None:
    assert "is not a text file" in complaint(b"\x08\x00\x12\x07pytorch")
    assert "not a text file" in complaint("model: {name: a}".encode("utf-16"))


def test_not_utf8_names_line(complaint) -> None:
    said = complaint("model:\n  name: caf\u00e9\n".encode("latin-1"))
    assert "conf.yaml:2: byte 0xe9 is not UTF-8" in said


def test_control_character_names_line(complaint) -> None:
    assert "conf.yaml:4: not yaml: unacceptable character" in complaint("device: \x07\n")


def test_tab(complaint) -> None:
    said = complaint("tuning:\n\trandom_seed: 1\n")
    assert "conf.yaml:5: not yaml: a tab: yaml uses spaces" in said
    assert "random_seed: 1" in said


def test_bad_indentation(complaint) -> None:
    said = complaint("device: cpu\n  version: 1.0\n")
    assert "conf.yaml:5: not yaml: unexpected ':'; check the indentation" in said


def test_unclosed_bracket(complaint) -> None:
    assert "conf.yaml:5: not yaml: " in complaint("tuning: {objective: [performance\n")


def test_duplicate_keys_tell_both_lines(complaint) -> None:
    said = complaint("tuning:\n  random_seed: 1\n  random_seed: 2\n")
    assert said == ("conf.yaml:6: tuning.random_seed: given twice, first on line 5: keep only one")


def test_second_document(complaint) -> None:
    assert "conf.yaml:5: a second document begins" in complaint("device: cpu\n---\na: 1\n")


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system ['touch x']", "!!python/tuple [1]", "!Thing {a: 1}", "!!set"],
)
def test_tags_are_refused(complaint, tag: str) -> None:
    said = complaint(f"device: {tag}\n")
    assert "conf.yaml:4: tag " in said
    assert "is not allowed: a configuration holds plain data only" in said


def test_standard_tags_mean_what_they_say(loaded) -> None:
    config = loaded("tuning: {random_seed: !!int '7'}\nversion: !!float 1\n")
    assert config.tuning.random_seed == 7
    assert load({"model": {"name": "a"}}) != config


def test_pruner_tag(loaded, complaint) -> None:
    config = loaded(
        "pruning:\n  approach:\n    weight_compression:\n      pruners:\n"
        "        - !Pruner\n            names: ['conv1']\n            prune_type: pattern_lock\n"
    )
    (pruner,) = config.pruning.approach.weight_compression.pruners
    assert pruner.names == ("conv1",)
    said = complaint("evaluation: !Pruner {accuracy: }\n")
    assert "conf.yaml:4: evaluation: the tag !Pruner belongs under pruning" in said


def test_alias_bomb(complaint) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert f"more than {MAX_NODES} values after expanding aliases" in complaint("\n".join(lines))


def test_alias_without_anchor_and_to_itself(complaint) -> None:
    assert "conf.yaml:4: alias *b has no anchor" in complaint("device: *b\n")
    assert "alias *a has no anchor" in complaint("nas: &a {b: *a}\n")


@pytest.mark.parametrize("text", ["nas: " + "[" * 2000, "nas: " + "{a: " * 2000, "- " * 500])
def test_too_deep(complaint, text: str) -> None:
    assert f"nested deeper than {MAX_DEPTH} levels" in complaint(text, model=False)


def test_too_large(write) -> None:
    path = write("# " + "x" * MAX_BYTES)
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(path)


def test_a_key_that_is_a_list(complaint) -> None:
    assert "conf.yaml:4: a key must be a plain word" in complaint("[a, b]: c\n")


def test_unknown_yaml_version(complaint) -> None:
    said = complaint("%YAML 3.0\n---\na: 1\n", model=False)
    assert "conf.yaml:1: not yaml: found incompatible YAML document" in said
    said = complaint("%YAML 1.29\n---\na: 1\n", model=False)
    assert "conf.yaml: not yaml of version 1.1 or 1.2" in said


def test_bom_crlf_anchors_and_merge(write) -> None:
    text = (
        "\ufeffmodel: {name: net}\r\n"
        "quantization:\r\n"
        "  op_wise:\r\n"
        "    a: &keep {activation: {dtype: fp32}}\r\n"
        "    b: *keep\r\n"
        "    c: {<<: *keep, weight: {dtype: fp32}}\r\n"
    )
    path = write(text)
    rules = load(path).quantization.op_wise
    assert rules["a"] == rules["b"]
    assert rules["c"].activation == rules["a"].activation
    assert rules["c"].weight.dtype == ("fp32",)
    assert path.read_bytes() == text.encode()


def test_users_file_is_never_written(write) -> None:
    text = "# about this model: bert\nmodel: {name: net}  # no version here\n"
    path = write(text)
    path.chmod(0o444)
    before = path.stat().st_mtime_ns
    load(path)
    assert path.read_text() == text
    assert path.stat().st_mtime_ns == before


def test_yaml_of_others_is_left_alone(loaded) -> None:
    from ruamel.yaml import YAML

    loaded("pruning:\n")
    assert YAML(typ="safe", pure=True).load("a: null") == {"a": None}
    with pytest.raises(Exception, match="Pruner"):
        YAML(typ="safe", pure=True).load("a: !Pruner {b: 1}")


_ALPHABET = "\t\n :-?[]{}&*!|>'\"%@`#,~\\ab01.\x07\x85\u2028"
_BODY = "model: {name: x}\ntuning:\n  strategy: basic\n  exit_policy: &e {timeout: 0}\nnas: *e\n"


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text(_ALPHABET, max_size=12), st.integers(0, len(_BODY)), st.integers(0, 9))
def test_any_text_gives_a_config_or_a_config_error(
    tmp_path: Path, noise: str, at: int, cut: int
) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes((_BODY[:at] + noise + _BODY[at + cut :]).encode())
    try:
        assert isinstance(load(path), Config)
    except ConfigError as error:
        assert str(path) in str(error)
