"""An environment whose CPU is emulated: AVX2 and nothing newer, whatever this machine has.

    python tools/emulate.py build/avx2        then build/avx2/bin/python -m pytest ...

The folder is a virtual environment of the same packages as the one this runs in. Its `python` is
a wrapper around qemu's user mode and gives its own path as sys.executable, so that processes which
tests start are emulated, too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

EMULATOR = "qemu-x86_64"
INSTALL = (
    f"{EMULATOR} is not installed: it is in Debian's and Ubuntu's package qemu-user "
    "(apt-get install qemu-user), in Fedora's qemu-user"
)
WRAPPER = """#!/bin/sh
exec {emulator} -cpu max -0 "{here}" "{python}" "$@"
"""


def emulated(folder: Path, environment: Path, emulator: str) -> Path:
    """The wrapper of an environment's interpreter, made in `folder`."""
    folder = folder.resolve()
    wrapper = folder / "bin" / "python"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(environment / "pyvenv.cfg", folder / "pyvenv.cfg")
    library = folder / "lib"
    library.unlink(missing_ok=True)
    library.symlink_to(environment / "lib")
    python = (environment / "bin" / "python").resolve()
    wrapper.write_text(WRAPPER.format(emulator=emulator, here=wrapper, python=python))
    wrapper.chmod(0o755)
    return wrapper


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        print(INSTALL, file=sys.stderr)
        return 1
    print(emulated(folder, Path(sys.prefix), emulator))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
