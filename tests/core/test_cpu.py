"""Reading the machine, from made-up /proc and /sys trees and from the real one."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import numpy
import pytest

from lpot.core import cpu as machine_room
from lpot.core.cpu import FEATURES, VNNI, Cpu, probe, this_cpu, usable_cores

AVX2 = "fpu sse2 fma avx2 bmi2"
SERVER = f"{AVX2} avx512f avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16"
GB = 1 << 30


def machine(root: Path, flags: str = AVX2, files: dict[str, str] | None = None) -> Path:
    cpus = [
        f"processor\t: {number}\nmodel name\t: Toy CPU\nphysical id\t: 0\n"
        f"core id\t\t: {number // 2}\nflags\t\t: {flags}\n"
        for number in range(4)
    ]
    made = {
        "proc/cpuinfo": "\n".join(cpus),
        "proc/meminfo": f"MemTotal: {16 * GB // 1024} kB\nMemAvailable: {8 * GB // 1024} kB\n",
        **(files or {}),
    }
    for name, text in made.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)


@pytest.mark.parametrize(
    ("flags", "features", "vnni"),
    [
        (AVX2, ("avx2",), False),
        (f"{AVX2} avx_vnni", ("avx2", "avx_vnni"), True),
        (
            SERVER,
            ("avx2", "avx512f", "avx512_vnni", "amx_int8", "avx512_bf16", "amx_bf16"),
            True,
        ),
        ("fpu sse2 avx2x", (), False),
    ],
)
def test_features(tmp_path, flags, features, vnni):
    cpu = probe(machine(tmp_path, flags))
    assert cpu.features == features
    assert cpu.has(*VNNI) is vnni
    assert cpu.name == "Toy CPU"


def test_arm_names_its_features_otherwise(tmp_path):
    text = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm bf16\n"
    assert probe(machine(tmp_path, files={"proc/cpuinfo": text})).features == (
        "asimddp",
        "i8mm",
        "bf16",
    )


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        (AVX2, "avx2"),
        (f"{AVX2} avx512f", "avx2"),
        (f"{AVX2} avx_vnni", "vnni"),
        (f"{AVX2} avx512f avx512_vnni", "vnni"),
        (SERVER, "amx"),
        ("fpu sse2", platform.machine()),
        ("asimd asimddp", "dotprod"),
        ("asimd asimddp i8mm", "i8mm"),
    ],
)
def test_the_kind_is_the_best_integer_instruction(tmp_path, flags, kind):
    assert probe(machine(tmp_path, flags)).kind == kind


def test_what_an_emulator_hides_is_not_there(monkeypatch):
    """/proc/cpuinfo is the host's under qemu-user; CPUID is not."""
    host = {"processor": "0", "flags": SERVER}
    monkeypatch.setattr(machine_room, "_cpuinfo", lambda root: [host])
    monkeypatch.setattr(machine_room, "_denied_features", lambda: {"avx512f", "amx_int8"})
    cpu = probe()
    assert not {"avx512f", "amx_int8"} & set(cpu.features) and cpu.has("avx2", "avx512_vnni")
    assert "hidden from this process: amx_int8, avx512f, which the machine has" in cpu.notes


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPUID is x86's")
def test_cpuid_and_numpy_agree_on_this_machine():
    found = {name: name not in machine_room._denied_features() for name in ("avx2", "avx512f")}
    room = numpy._core if hasattr(numpy, "_core") else numpy.core
    features = room._multiarray_umath.__cpu_features__
    assert found == {name: features[name.upper()] for name in found}


def test_a_later_version_may_tell_more(tmp_path):
    cpu = probe(machine(tmp_path))
    assert Cpu.from_json({**cpu.to_json(), "sockets": 2}) == cpu


def test_cores_without_limits(tmp_path):
    cpu = probe(machine(tmp_path))
    assert (cpu.cores, cpu.physical_cores) == (4, 2)


def test_affinity_is_respected(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3}, raising=False)
    cpu = probe(machine(tmp_path))
    assert (cpu.cores, cpu.physical_cores, usable_cores()) == (2, 1, (2, 3))


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1)]
)
def test_quota_of_cgroup_v2(tmp_path, quota, cores):
    files = {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": quota}
    assert probe(machine(tmp_path, files=files)).cores == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 4), ("300000", 3)])
def test_quota_of_cgroup_v1(tmp_path, quota, cores):
    files = {
        "proc/self/cgroup": "5:cpuacct,cpu:/job\n",
        "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": f"{quota}\n",
        "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
    }
    assert probe(machine(tmp_path, files=files)).cores == cores


def test_memory_of_the_machine(tmp_path):
    cpu = probe(machine(tmp_path))
    assert (cpu.memory, cpu.available) == (16 * GB, 8 * GB)


@pytest.mark.parametrize(
    ("group", "folder", "names"),
    [
        ("0::/box\n", "sys/fs/cgroup/box", ("memory.max", "memory.current")),
        (
            "4:memory:/box\n",
            "sys/fs/cgroup/memory/box",
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ),
    ],
)
def test_memory_of_a_container(tmp_path, group, folder, names):
    files = {
        "proc/self/cgroup": group,
        f"{folder}/{names[0]}": str(4 * GB),
        f"{folder}/{names[1]}": str(3 * GB),
        f"{folder}/memory.stat": f"anon 5\ninactive_file {2 * GB}\n",
    }
    cpu = probe(machine(tmp_path, files=files))
    assert cpu.memory == 4 * GB
    assert cpu.available == 3 * GB  # cached pages of files can be had back


def test_a_container_whose_group_is_not_mounted(tmp_path):
    files = {
        "proc/self/cgroup": "0::/../../elsewhere\n",
        "sys/fs/cgroup/memory.max": str(GB),
        "sys/fs/cgroup/memory.current": "0",
    }
    assert probe(machine(tmp_path, files=files)).memory == GB


def test_elsewhere_it_degrades_with_a_word(tmp_path):
    cpu = probe(tmp_path)
    assert (cpu.features, cpu.memory, cpu.available, cpu.cores) == ((), 0, 0, 4)
    assert any("features can't be read" in note for note in cpu.notes)
    assert any("memory can't be read" in note for note in cpu.notes)


def test_without_affinity(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert probe(tmp_path).cores == 1


def test_json_round_trip(tmp_path):
    cpu = probe(machine(tmp_path, SERVER))
    assert Cpu.from_json(json.loads(json.dumps(cpu.to_json()))) == cpu


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="not Linux")
def test_this_machine(monkeypatch):
    monkeypatch.undo()
    cpu = this_cpu()
    assert 1 <= cpu.physical_cores <= cpu.cores
    assert set(cpu.features) <= set(FEATURES)
    assert 0 < cpu.available <= cpu.memory
    assert this_cpu() is cpu
