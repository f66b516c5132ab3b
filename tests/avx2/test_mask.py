"""What tools/avx2.py does, on a small library: the right bytes are replaced, bits are hidden."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "avx2.py"
# Registers of leaf 7: what must be hidden, of which this CPU may have nothing, and AVX2 itself.
SOURCE = """
#include <cpuid.h>
unsigned decoy(void) { return 0x00a20f00; } /* the two bytes, inside of another instruction */
unsigned leaf7(int subleaf, int which) {
    unsigned r[4];
    __cpuid_count(7, subleaf, r[0], r[1], r[2], r[3]);
    return r[which];
}
"""
ASK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.leaf7.restype = ctypes.c_uint32
glibc = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf
glibc.restype = ctypes.POINTER(ctypes.c_uint32 * 8)
print(hex(library.decoy()))
for subleaf, number in ((0, 1), (1, 6)):
    print(*(library.leaf7(subleaf, each) for each in range(4)))
    print(*glibc(number).contents)
"""
AVX512F, VNNI, AVX2, AVX_VNNI_AND_BF16 = 1 << 16, 1 << 11, 1 << 5, 1 << 4 | 1 << 5


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("Linux on x86-64 only")
    spec = importlib.util.spec_from_file_location("avx2_tool", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    for program in module.TOOLS:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    return module


@pytest.fixture(scope="module")
def library(tool: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mask")
    (folder / "asks.c").write_text(SOURCE)
    path = folder / "asks.so"
    build = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(path), str(folder / "asks.c")]
    subprocess.run(build, check=True)
    return path


def test_only_the_instruction_is_found(tool: ModuleType, library: Path) -> None:
    data = library.read_bytes()
    code = tool.read_code(data)
    assert len(list(tool.candidates(data, code))) == 2
    (offset,) = tool.find_cpuid(data)
    native = ctypes.CDLL(str(library))
    inside = ctypes.cast(native.leaf7, ctypes.c_void_p).value
    decoy = ctypes.cast(native.decoy, ctypes.c_void_p).value
    assert inside and decoy
    assert abs((inside - decoy) - (offset - data.index(tool.CPUID))) < 32


def test_a_file_without_code_is_left_alone(tool: ModuleType) -> None:
    assert tool.find_cpuid(b"\x0f\xa2 is not a library") == []
    assert tool.find_cpuid(b"\x7fELF\x01" + bytes(64) + b"\x0f\xa2") == []


def test_a_process_sees_avx2_and_nothing_newer(tool: ModuleType, library: Path) -> None:
    data = bytearray(library.read_bytes())
    for offset in tool.find_cpuid(bytes(data)):
        data[offset : offset + 2] = tool.BREAKPOINT
    patched = library.with_name("patched.so")
    patched.write_bytes(data)
    mask = library.with_name("mask.so")
    tool.compile_c("avx2.c", mask, "-shared", "-fPIC")
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(patched)],
        env={**os.environ, "LD_PRELOAD": str(mask)},
        capture_output=True,
        text=True,
        check=True,
    )
    decoy, *lines = done.stdout.splitlines()
    assert decoy == "0xa20f00"
    leaf, known, extended, extended_known = ([int(word) for word in line.split()] for line in lines)
    native = ctypes.CDLL(str(library))
    native.leaf7.restype = ctypes.c_uint32
    assert leaf[1] & AVX2 == native.leaf7(0, 1) & AVX2
    assert not leaf[1] & AVX512F and not leaf[2] & VNNI and not extended[0] & AVX_VNNI_AND_BF16
    for told in (known[:4], known[4:]):
        assert not told[1] & AVX512F and not told[2] & VNNI
    for told in (extended_known[:4], extended_known[4:]):
        assert not told[0] & AVX_VNNI_AND_BF16


def test_a_folder_of_something_else_is_left_alone(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("dear")
    done = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and "is left alone" in done.stderr
    assert (tmp_path / "mine").read_text() == "dear"
