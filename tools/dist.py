"""`make dist`: the wheel and the source archive, the same bytes whenever they are made.

    python tools/dist.py                     build both into dist/, twice, and compare
    python tools/dist.py --try               and install the wheel in an empty environment
    python tools/dist.py --try onnx          with an extra, trying what it is for

Everything happens in a copy: nothing that lies about in the checkout gets into a wheel.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
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
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis",
    "lpot_workspace",
)  # fmt: skip
BUILD = "from setuptools import build_meta as b; b.build_wheel({0!r}); b.build_sdist({0!r})"
# Each line runs in the empty environment. Extra → what it is for.
TRIALS = {
    "": ["-c", "import lpot, sys; assert 'numpy' not in sys.modules; print(lpot.__version__)"],
    "onnx": ["-m", "lpot.cli", "demo", "-q"],
    "pytorch": ["-c", "from lpot.backends import get_backend; get_backend('pytorch')"],
    "tensorflow": ["-c", "from lpot.backends import get_backend; get_backend('tensorflow')"],
    "search": ["-c", "import optuna, scipy, lpot"],
    "data": ["-c", "import PIL, sklearn, pycocotools, sacrebleu, lpot.data, lpot.metric"],
}
# A user's program: with py.typed, mypy sees that the last line is wrong and the others are right.
PROGRAM = """
import lpot
from lpot.core.model import Model
model: Model = lpot.load("model.onnx")
number: int = lpot.load("model.onnx")
"""


def built(folder: Path) -> list[Path]:
    """Both archives of this checkout."""
    with tempfile.TemporaryDirectory(prefix="lpot-dist-") as name:
        copy = Path(name) / "lpot"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
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


def tried(wheel: Path, extra: str) -> None:
    """Install it in an empty environment and do what the extra is for."""
    with tempfile.TemporaryDirectory(prefix="lpot-try-") as name:
        venv.create(name, with_pip=True)
        python = Path(name) / "bin" / "python"
        what = f"{wheel}[{extra}]" if extra else str(wheel)
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        install = [str(python), "-m", "pip", "install", "--quiet", *constraints, what]
        subprocess.run(install, check=True, cwd=name)
        subprocess.run([str(python), *TRIALS[extra]], check=True, cwd=name)
        if not extra:
            check_types(Path(name), python)
    print(f"tried: {what.rsplit('/', 1)[-1]}")


def check_types(folder: Path, python: Path) -> None:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    mypy = [sys.executable, "-m", "mypy", "--python-executable", str(python), str(program)]
    told = subprocess.run(mypy, cwd=folder, capture_output=True, text=True).stdout
    wrong = [line for line in told.splitlines() if ": error:" in line]
    last = len(PROGRAM.splitlines())
    if len(wrong) != 1 or not wrong[0].startswith(f"program.py:{last}:"):
        raise SystemExit(f"a user's mypy does not see our types:\n{told}")


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
    parser.add_argument("--try", dest="extras", nargs="*", choices=[*TRIALS], help="extras")
    given = parser.parse_args()
    made = built(given.folder)
    with tempfile.TemporaryDirectory(prefix="lpot-again-") as name:
        for one, other in zip(made, built(Path(name)), strict=True):
            if one.read_bytes() != other.read_bytes():
                raise SystemExit(f"{one.name} is not the same when built again")
    (wheel,) = (path for path in made if path.suffix == ".whl")
    check_wheel(wheel)
    for path in made:
        print(path)
    for extra in [] if given.extras is None else ["", *given.extras]:
        tried(wheel, extra)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
