"""An environment whose CPU seems to have AVX2 and nothing newer, at the full speed of this one.

    python tools/avx2.py build/avx2-native        then build/avx2-native/bin/python -m pytest ...

The folder is a copy (by hard links) of the environment this runs in. In the libraries that ask
CPUID what to run, that instruction is a breakpoint, which a preloaded library answers: see avx2.c.
Timed there, a model runs the code of an AVX2 CPU, on this CPU's clock, caches and memory.
"""

from __future__ import annotations

import argparse
import bisect
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CPUID, BREAKPOINT = b"\x0f\xa2", b"\xcc\x90"  # the second: int3; nop
HERE = Path(__file__).resolve().parent
TOOLS = {"gcc": "gcc", "objdump": "binutils"}
NEEDED = (
    "{tool} is not installed: it is in the package {package} "
    "(Debian, Ubuntu: apt-get install {package}; Fedora: dnf install {package})"
)


@dataclass(frozen=True)
class Code:
    """What a shared library executes: sections as (address, offset, size), starts of functions."""

    sections: tuple[tuple[int, int, int], ...]
    functions: tuple[int, ...]


def read_code(data: bytes) -> Code | None:
    """None for what is not a shared library for x86-64."""
    if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18) != (62,):
        return None
    table, count, names = (
        *struct.unpack_from("<Q", data, 40),
        *struct.unpack_from("<HH", data, 60),
    )
    headers = [struct.unpack_from("<IIQQQQ", data, table + 64 * each) for each in range(count)]
    strings = headers[names][4]
    starts: set[int] = set()
    for name, kind, _, address, offset, size in headers:
        end = data.index(b"\0", strings + name)
        if data[strings + name : end] == b".eh_frame_hdr":
            starts.update(_unwound(data, address, offset))
        elif kind in (2, 11):  # symbols, and those of dynamic linking
            starts.update(_symbols(data[offset : offset + size]))
    executed = tuple((h[3], h[4], h[5]) for h in headers if h[1] == 1 and h[2] & 4)
    return Code(executed, tuple(sorted(starts)))


def _unwound(data: bytes, address: int, offset: int) -> Iterator[int]:
    """Functions in the table that unwinding searches: it is there in stripped libraries, too."""
    version, _, count_format, table_format = data[offset : offset + 4]
    if (version, count_format, table_format) == (1, 0x03, 0x3B):
        (count,) = struct.unpack_from("<I", data, offset + 8)
        pairs = struct.unpack_from(f"<{2 * count}i", data, offset + 12)
        yield from (address + start for start in pairs[::2])


def _symbols(table: bytes) -> Iterator[int]:
    """Functions among the symbols: MKL's have no entry for unwinding."""
    for _, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table):
        if info & 15 == 2 and section:
            yield value


def candidates(data: bytes, code: Code) -> Iterator[tuple[int, int]]:
    """(address, offset) of each pair of bytes that might be a CPUID."""
    for address, offset, size in code.sections:
        at = data.find(CPUID, offset, offset + size)
        while at >= 0:
            yield address + at - offset, at
            at = data.find(CPUID, at + 1, offset + size)


def find_cpuid(data: bytes) -> list[int]:
    """Offsets of the real ones: each candidate's function is disassembled from its start."""
    code = read_code(data)
    if code is None:
        return []
    ends: dict[int, int] = {}  # start of a function: end of its last candidate
    found: list[int] = []
    for address, offset in candidates(data, code):
        before = bisect.bisect_right(code.functions, address) - 1
        start = offset - (address - code.functions[before]) if before >= 0 else offset
        ends[start] = offset + 2
    cut, origin = bytearray(), []
    for start, end in ends.items():
        origin.append((len(cut), start))
        cut += data[start:end] + b"\x90" * 16  # an instruction has 15 bytes at most
    for place in _disassembled(bytes(cut)) if cut else ():
        began, start = origin[bisect.bisect_right(origin, (place, len(data))) - 1]
        found.append(start + place - began)
    return found


def _disassembled(machine_code: bytes) -> list[int]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(machine_code)
        file.flush()
        command = ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [int(at, 16) for at in re.findall(r"^ *([0-9a-f]+):\t0f a2 +\tcpuid", text, re.M)]


def copy_environment(source: Path, folder: Path) -> int:
    """Hard links where they can be; files with a CPUID are new. The number of those replaced."""
    replaced = 0

    def copy(old: str, new: str) -> None:
        nonlocal replaced
        data = b""
        if ".so" in Path(old).name and not Path(old).is_symlink():
            data = Path(old).read_bytes()
        found = find_cpuid(data) if CPUID in data else []
        if found:
            patched = bytearray(data)
            for offset in found:
                patched[offset : offset + 2] = BREAKPOINT
            Path(new).write_bytes(patched)
            replaced += len(found)
            print(f"{len(found):4d} {Path(new).relative_to(folder)}", flush=True)
            return
        try:
            os.link(old, new, follow_symlinks=False)
        except OSError:  # another file system
            shutil.copy2(old, new, follow_symlinks=False)

    shutil.copytree(source / "lib", folder / "lib", symlinks=True, copy_function=copy)
    return replaced


def compile_c(source: str, target: Path, *options: str) -> None:
    command = ["gcc", "-O2", "-Wall", "-Werror", *options, "-o", str(target), str(HERE / source)]
    subprocess.run([*command, "-ldl"], check=True)


def make(source: Path, folder: Path) -> Path:
    """The environment; the path of its interpreter."""
    (folder / "bin").mkdir(parents=True)
    print(f"replaced: {copy_environment(source, folder)} instructions")
    library, python = folder / "lib" / "avx2.so", folder / "bin" / "python"
    compile_c("avx2.c", library, "-shared", "-fPIC")
    names = {"LIBRARY": library, "HERE": python, "PYTHON": (source / "bin/python").resolve()}
    compile_c("avx2_python.c", python, *(f'-D{name}="{path}"' for name, path in names.items()))
    for name in ("python3", f"python3.{sys.version_info.minor}"):
        (folder / "bin" / name).symlink_to("python")
    for script in (source / "bin").iterdir():
        first, _, rest = script.read_bytes().partition(b"\n") if script.is_file() else (b"", 0, b"")
        if first.startswith(b"#!" + bytes(source / "bin" / "python")):
            copy = folder / "bin" / script.name
            copy.write_bytes(b"#!" + bytes(python) + b"\n" + rest)
            copy.chmod(0o755)
    shutil.copyfile(source / "pyvenv.cfg", folder / "pyvenv.cfg")
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="made anew if it exists")
    folder = parser.parse_args().folder.resolve()
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print(f"needs Linux on x86-64; this is {platform.system()}, {platform.machine()}")
        return 1
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    for tool in missing:
        print(NEEDED.format(tool=tool, package=TOOLS[tool]), file=sys.stderr)
    if missing:
        return 1
    if folder.exists() and not (folder / "pyvenv.cfg").exists():
        print(f"{folder} is not an environment: it is left alone", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(make(Path(sys.prefix), folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
