"""`make dist`: the wheel and the source archive, the same bytes whenever they are made.

    python tools/dist.py                     build both into dist/, twice, and compare
    python tools/dist.py --try               and install the wheel in an empty environment: the
                                             budgets of size and import, a user's mypy and pyright
    python tools/dist.py --try onnx          with an extra, too, trying what it is for

Everything happens in a copy: nothing that lies about in the checkout gets into a wheel.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EPOCH = 1_577_836_800  # the first second of 2020: zip files know no time before 1980
LARGEST = 15_000_000  # bytes of the package as installed
LONGEST = 0.05  # seconds of CPU for `import lpot`
IMPORT = "import time; t = time.process_time(); import lpot; print(time.process_time() - t)"
SIZE = """
import pathlib, lpot
folder = pathlib.Path(lpot.__file__).parent
print(sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()))
"""
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis",
    "lpot_workspace",
)  # fmt: skip
BUILD = "from setuptools import build_meta as b; b.build_wheel({0!r}); b.build_sdist({0!r})"
TRIALS = ROOT / "tools" / "trials"
# What is tried → the extras it needs. "core" is lpot alone.
EXTRAS = {
    "core": "",
    "onnx": "onnx",
    "pytorch": "pytorch",
    "tensorflow": "tensorflow",
    "search": "search,onnx",
    "data": "data",
    "mxnet": "mxnet",
}
# A user's program: with py.typed, mypy sees that the last line is wrong and the others are right.
PROGRAM = """
import lpot
from lpot.core.model import Model
model: Model = lpot.load("model.onnx")
number: int = lpot.load("model.onnx")
"""


def built(source: Path, folder: Path) -> list[Path]:
    """Both archives of these sources."""
    with tempfile.TemporaryDirectory(prefix="lpot-dist-") as name:
        copy = Path(name) / "lpot"
        shutil.copytree(source, copy)
        out = Path(name) / "out"
        out.mkdir()
        for path in copy.rglob("*"):
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "PYTHONHASHSEED": "0"}
        program = [sys.executable, "-c", BUILD.format(str(out))]
        done = subprocess.run(program, cwd=copy, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        (source,) = out.glob("*.tar.gz")
        source.write_bytes(repacked(source.read_bytes()))
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.move(path, folder / path.name)) for path in sorted(out.iterdir())]


def repacked(archive: bytes) -> bytes:
    """The same files without what differs from day to day: times, owners, order."""
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid = EPOCH, 0, 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    return gzip.compress(plain.getvalue(), mtime=EPOCH)


def tried(wheel: Path, name: str) -> None:
    """Install it in an empty environment and do what the extra is for."""
    # Nor may a checkout or another interpreter that the caller works with be found.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LPOT_"))}
    with tempfile.TemporaryDirectory(prefix="lpot-try-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        extras = EXTRAS[name]
        what = f"{wheel}[{extras}]" if extras else str(wheel)
        # The pins are for the newest frameworks; MXNet needs an old numpy, which rules them out.
        pins = [] if name == "mxnet" else ["--constraint", str(ROOT / "constraints.txt")]
        install = [str(python), "-m", "pip", "install", "--quiet", *pins, what]
        subprocess.run(install, check=True, cwd=folder, env=clean)
        trial = [str(python), "-P", str(TRIALS / f"trial_{name}.py")]
        subprocess.run(trial, check=True, cwd=folder, env=clean, stdout=subprocess.DEVNULL)
        if name == "core":
            check_budgets(python)
            check_types(Path(folder), python)
    print(f"tried: {name}", flush=True)


def check_budgets(python: Path) -> None:
    """CPU time of the import, and what lies on the disk."""
    seconds = min(float(asked(python, IMPORT)) for _ in range(5))
    size = int(asked(python, SIZE))
    told = f"import {seconds:.3f} s of CPU, {size / 1e6:.1f} MB installed"
    if seconds > LONGEST or size > LARGEST:
        raise SystemExit(f"{told}; {LONGEST} s and {LARGEST / 1e6:.0f} MB are allowed")
    print(told)


def asked(python: Path, program: str) -> str:
    """`-I`: whatever the caller's environment says."""
    return subprocess.run(
        [str(python), "-I", "-c", program], check=True, capture_output=True, text=True
    ).stdout


def check_types(folder: Path, python: Path) -> None:
    """mypy and pyright both see the last line's mistake and no other."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    checkers = {
        "mypy": [sys.executable, "-m", "mypy", "--python-executable", str(python), str(program)],
        "pyright": [sys.executable, "-m", "pyright", "--pythonpath", str(python), str(program)],
    }
    last = len(PROGRAM.splitlines())
    for name, command in checkers.items():
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        wrong = [line for line in done.stdout.splitlines() if re.search(r"(: | - )error: ", line)]
        if len(wrong) != 1 or f"program.py:{last}:" not in wrong[0]:
            raise SystemExit(f"a user's {name} does not see our types:\n{done.stdout}{done.stderr}")
        print(f"{name} sees our types")


def check_source(archive: Path) -> None:
    """Whoever unpacks it has all that the checkout has, tests and Makefile among it."""
    if not (ROOT / ".git").exists():
        return
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    if missing := sorted({*listed.stdout.decode().split()} - names):
        raise SystemExit(f"{archive.name} lacks {', '.join(missing)}: see MANIFEST.in")


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        size = sum(info.file_size for info in archive.infolist())
        strange = [name for name in archive.namelist() if not name.startswith("lpot")]
    if strange or size > LARGEST:
        raise SystemExit(f"{wheel.name}: {size / 1e6:.1f} MB, and {strange or 'nothing'} else")
    print(f"{wheel.name}: {size / 1e6:.1f} MB installed, {LARGEST / 1e6:.0f} are allowed")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    parser.add_argument("--try", dest="extras", nargs="*", choices=[*EXTRAS], help="extras")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lpot-again-") as name:
        source = Path(name) / "source"
        shutil.copytree(ROOT, source, ignore=LEFT_OUT)
        made = built(source, given.folder)
        for one, other in zip(made, built(source, Path(name) / "again"), strict=True):
            if one.read_bytes() != other.read_bytes():
                raise SystemExit(f"{one.name} is not the same when built again")
    (wheel,) = (path for path in made if path.suffix == ".whl")
    (archive,) = (path for path in made if path.suffix == ".gz")
    check_wheel(wheel)
    check_source(archive)
    for path in made:
        print(path)
    for name in [] if given.extras is None else ["core", *given.extras]:
        tried(wheel, name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
