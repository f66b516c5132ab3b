"""`make test-versions`: the quick suite with the oldest and the newest versions that we promise.

    python tools/versions.py                     every environment that this machine can make
    python tools/versions.py onnx-oldest-3.11    one of them
    python tools/versions.py --list

Each environment is fresh: uv chooses the versions from the bounds in pyproject.toml, so that the
promise and what was tried can't drift apart. What was seen is written into docs/versions.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "versions"
PAGE = ROOT / "docs" / "versions.md"
TOOLS = ("pytest>=8", "hypothesis>=6.100", "psutil>=6")
CORE = ("tests/core", "tests/config", "tests/strategy", "tests/test_import.py")
OF = {
    "onnx": ("tests/backends/onnx/test_conformance.py", "tests/demo"),
    "pytorch": ("tests/backends/torch/test_torch_conformance.py",),
    "tensorflow": ("tests/backends/tensorflow/test_conformance.py",),
}
NAMED = ("numpy", "onnx", "onnxruntime", "torch", "transformers", "safetensors", "tensorflow-cpu")


@dataclass(frozen=True)
class Environment:
    """An extra, on one Python, with the oldest or the newest versions of what it needs."""

    extra: str
    oldest: bool
    python: str

    @property
    def name(self) -> str:
        return f"{self.extra}-{'oldest' if self.oldest else 'newest'}-{self.python}"

    @property
    def requirements(self) -> list[str]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        wanted = [*project["dependencies"], *project["optional-dependencies"][self.extra], *TOOLS]
        if self.extra == "pytorch" and not self.oldest:
            # The newest that has a build for CPUs: a plain torch brings gigabytes of CUDA.
            pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
            wanted += [pin for pin in pins if pin.startswith("torch==")]
        return wanted

    @property
    def tests(self) -> tuple[str, ...]:
        return (*CORE, *OF[self.extra]) if self.extra == "onnx" else OF[self.extra]


ENVIRONMENTS = (
    Environment("onnx", True, "3.11"),
    Environment("onnx", False, "3.11"),
    Environment("onnx", False, "3.12"),
    Environment("onnx", False, "3.13"),
    Environment("tensorflow", True, "3.11"),
    Environment("tensorflow", False, "3.12"),
    Environment("tensorflow", False, "3.13"),
    Environment("pytorch", True, "3.11"),
    Environment("pytorch", False, "3.11"),
    Environment("pytorch", False, "3.13"),
)


def made(environment: Environment, uv: str) -> Path | None:
    """Its interpreter; None where this machine has no such Python."""
    folder = FOLDER / environment.name
    shutil.rmtree(folder, ignore_errors=True)
    plain = [uv, "venv", "--quiet", "--python", environment.python, str(folder)]
    if subprocess.run([*plain, "--no-python-downloads"], stderr=subprocess.DEVNULL).returncode:
        return None
    python = folder / "bin" / "python"
    chosen = "lowest-direct" if environment.oldest else "highest"
    install = [uv, "pip", "install", "--quiet", "--python", str(python), "--resolution", chosen]
    subprocess.run([*install, "--only-binary", ":all:", *environment.requirements], check=True)
    return python


def installed(python: Path, uv: str) -> dict[str, str]:
    told = subprocess.run(
        [uv, "pip", "list", "--quiet", "--format", "json", "--python", str(python)],
        capture_output=True,
        check=True,
    )
    found = {entry["name"]: entry["version"] for entry in json.loads(told.stdout)}
    return {name: found[name] for name in NAMED if name in found}


def tested(python: Path, environment: Environment) -> str:
    """pytest's own last line."""
    program = [str(python), "-m", "pytest", "-q", "-m", "not slow", *environment.tests]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(program, cwd=ROOT, env=variables, capture_output=True, text=True)
    (FOLDER / f"{environment.name}.log").write_text(done.stdout + done.stderr)
    lines = done.stdout.splitlines() or ["nothing was run"]
    return re.sub(r" in [\d.]+s.*", "", lines[-1]).strip("= ")


def row(environment: Environment, uv: str) -> str:
    python = made(environment, uv)
    if python is None:
        return f"| {environment.name} | | no Python {environment.python} on this machine |"
    versions = ", ".join(f"{name} {version}" for name, version in installed(python, uv).items())
    return f"| {environment.name} | {versions} | {tested(python, environment)} |"


def write_page(rows: dict[str, str]) -> None:
    day = datetime.datetime.now(datetime.UTC).date()
    kept = dict(re.findall(r"^\| (\S+-\S+) (\|.*)$", PAGE.read_text("utf-8"), re.MULTILINE))
    for name, line in rows.items():
        kept[name] = line.removeprefix(f"| {name} ") + f" {day} |"
    order = [environment.name for environment in ENVIRONMENTS if environment.name in kept]
    head = PAGE.read_text("utf-8").split("| environment |")[0]
    table = ["| environment | versions | tests | on |", "| --- | --- | --- | --- |"]
    PAGE.write_text(
        head + "\n".join([*table, *(f"| {name} {kept[name]}" for name in order)]) + "\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="environments; all if none is named"
    )
    parser.add_argument("--list", action="store_true", help="the names, and nothing else")
    given = parser.parse_args()
    chosen = [e for e in ENVIRONMENTS if not given.names or e.name in given.names]
    unknown = {*given.names} - {e.name for e in chosen}
    if given.list or unknown:
        print("\n".join(e.name for e in ENVIRONMENTS), file=sys.stderr if unknown else sys.stdout)
        return 2 if unknown else 0
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if uv is None:
        print("uv is not installed: pip install uv", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = {}
    for environment in chosen:
        rows[environment.name] = row(environment, uv)
        print(rows[environment.name], flush=True)
        write_page({environment.name: rows[environment.name]})
    return (
        1
        if any(
            re.search("failed|error|nothing was run|no tests ran", line) for line in rows.values()
        )
        else 0
    )


if __name__ == "__main__":
    raise SystemExit(main())
