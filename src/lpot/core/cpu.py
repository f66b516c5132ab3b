"""What this machine offers: CPU features, the cores and the memory that are really ours."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from lpot.core.recipe import OpConfig, Recipe

# What decides the speed and the numerics of low precision, by the names the Linux kernel uses.
FEATURES = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "avx512_bf16",
    "amx_bf16",
    "asimddp",  # ARM's dot product, and its int8 and bf16 matrix products
    "i8mm",
    "bf16",
)
VNNI = ("avx512_vnni", "avx_vnni", "amx_int8")
# The best of these decides how fast INT8 is; the words are those of `target` where it has one.
KINDS = {
    "amx": ("amx_int8",),
    "vnni": ("avx512_vnni", "avx_vnni"),
    "avx2": ("avx2",),
    "i8mm": ("i8mm",),
    "dotprod": ("asimddp",),
}
# Where CPUID tells a feature: glibc's number of the leaf, register (eax … edx), bit.
_CPUID = {
    "avx2": (1, 1, 5),
    "avx512f": (1, 1, 16),
    "avx512_vnni": (1, 2, 11),
    "amx_bf16": (1, 3, 22),
    "amx_int8": (1, 3, 25),
    "avx_vnni": (6, 0, 4),
    "avx512_bf16": (6, 0, 5),
}


@dataclass(frozen=True)
class Cpu:
    """One machine. `cores` are those this process may use; memory is in bytes, 0 where unknown."""

    name: str
    architecture: str
    features: tuple[str, ...]
    cores: int
    physical_cores: int
    memory: int
    available: int
    notes: tuple[str, ...] = ()

    def has(self, *features: str) -> bool:
        """Any of these.

        >>> Cpu("x", "x86_64", ("avx2",), 2, 2, 0, 0).has(*VNNI)
        False
        """
        return any(feature in self.features for feature in features)

    @property
    def kind(self) -> str:
        """One word for how INT8 runs here: amx, vnni, avx2, i8mm, dotprod, or the architecture's.

        >>> Cpu("x", "x86_64", ("avx2", "avx_vnni"), 2, 2, 0, 0).kind
        'vnni'
        """
        for name, features in KINDS.items():
            if self.has(*features):
                return name
        return self.architecture or "unknown"

    def to_json(self) -> dict[str, Any]:
        raw = dict(vars(self))
        return {**raw, "features": list(self.features), "notes": list(self.notes)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Cpu:
        """What a later version adds is of no concern here."""
        known = {field.name: raw[field.name] for field in fields(cls) if field.name in raw}
        lists = {key: tuple(raw.get(key, ())) for key in ("features", "notes")}
        return cls(**{**known, **lists})


def probe(root: Path = Path("/")) -> Cpu:
    """Read it all again; `root` stands for the file system's root."""
    infos = _cpuinfo(root)
    first = infos[0] if infos else {}
    flags = set((first.get("flags") or first.get("Features") or "").split())
    notes = []
    hidden = sorted(flags & _denied_features()) if root == Path("/") else []
    if hidden:
        notes.append(f"hidden from this process: {', '.join(hidden)}, which the machine has")
        flags -= set(hidden)
    if not flags:
        notes.append(f"CPU features can't be read on {sys.platform}: none are assumed")
    allowed = usable_cores()
    total, available = _memory(root)
    if not total:
        notes.append(f"memory can't be read on {sys.platform}: it is not checked")
    cores = min(len(allowed), _quota(root) or len(allowed))
    return Cpu(
        name=first.get("model name") or platform.processor() or "unknown",
        architecture=platform.machine(),
        features=tuple(feature for feature in FEATURES if feature in flags),
        cores=cores,
        physical_cores=min(cores, _physical(infos, allowed)),
        memory=total,
        available=available,
        notes=tuple(notes),
    )


@cache
def this_cpu() -> Cpu:
    """The machine as it was at the first call: `available` is of that moment."""
    return probe()


def usable_cores() -> tuple[int, ...]:
    """Numbers of the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _denied_features() -> set[str]:
    """What CPUID says this very process lacks; none where there is no glibc (2.33) to ask.

    /proc/cpuinfo is of the machine below: under qemu-user it names what the emulated CPU lacks.
    """
    if platform.machine() != "x86_64":
        return set()
    try:
        ask = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf
    except (AttributeError, OSError, TypeError):
        return set()
    ask.restype = ctypes.POINTER(ctypes.c_uint32 * 4)
    return {
        name
        for name, (leaf, register, bit) in _CPUID.items()
        if not ask(leaf).contents[register] >> bit & 1
    }


def _cpuinfo(root: Path) -> list[dict[str, str]]:
    """One dict a logical CPU; empty where there is no /proc."""
    infos: list[dict[str, str]] = []
    for block in (_read(root / "proc/cpuinfo") or "").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
        info = {key.strip(): value.strip() for key, _, value in pairs}
        if "processor" in info:
            infos.append(info)
    return infos


def _physical(infos: list[dict[str, str]], allowed: tuple[int, ...]) -> int:
    """Cores without their hyper-threads, among the allowed ones."""
    cores = {
        (info.get("physical id"), info["core id"])
        for info in infos
        if "core id" in info and info["processor"].isdigit() and int(info["processor"]) in allowed
    }
    return len(cores) or len(allowed)


def available_memory() -> int:
    """Bytes that may be taken now; 0 where the system can't tell."""
    return _memory(Path("/"))[1]


def _memory(root: Path) -> tuple[int, int]:
    """Total and available bytes: the machine's, or the container's where that is less."""
    text = _read(root / "proc/meminfo")
    if text is None:
        return 0, 0
    kilobytes = {
        key: int(value.split()[0])
        for key, _, value in (line.partition(":") for line in text.splitlines())
        if value.split()
    }
    total = kilobytes.get("MemTotal", 0) * 1024
    available = kilobytes.get("MemAvailable", kilobytes.get("MemFree", 0)) * 1024
    for limit, used in _memory_limits(root):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return total, available


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) of every group above us; cached file pages don't count as used."""
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    for folder in _groups(root, "memory"):
        for limit_name, used_name in names:
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None and used is not None:
                stat = (_read(folder / "memory.stat") or "").splitlines()
                cached = [line.split()[1] for line in stat if line.startswith("inactive_file ")]
                yield limit, used - (int(cached[0]) if cached else 0)


def _quota(root: Path) -> int:
    """Whole cores' worth of CPU time a container may use; 0 without a limit."""
    quotas = []
    for folder in _groups(root, "cpu"):
        words = (_read(folder / "cpu.max") or "").split()
        if len(words) != 2:
            old = [_read(folder / f"cpu.cfs_{word}_us") for word in ("quota", "period")]
            words = [text.strip() for text in old if text is not None]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    # A thread beyond the quota is not run slower but halted, in the middle of a step: round down.
    return max(1, int(min(quotas))) if quotas else 0


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of our control groups (v2 and v1), innermost first.

    In a container the path named may lie outside of what is mounted: missing folders are harmless.
    """
    mount = root / "sys/fs/cgroup"
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = mount / controller if controllers else mount
        inner = top / path.lstrip("/")
        yield inner
        yield from (folder for folder in inner.parents if folder.is_relative_to(top))


def _number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


# -- Models made for CPUs with VNNI, opened on one without: told with what was measured.


# Rounding the output to 8 bits stays below 1 % of the exact sum; an overflow halves it.
TOLERANCE = 0.02


def overflow_of(recipe: Recipe | None, worst_error: Callable[[str], float]) -> str:
    """What a model made under this recipe suffers on this CPU; empty if nothing.

    `worst_error` gives, for a kind of op, how far the largest possible sum of full 8-bit products
    is off here, relative to the truth: a backend's self-test.
    """
    full: dict[str, int] = {}
    for key, config in (recipe.ops if recipe is not None else {}).items():
        if _uses_all_bits(config):
            full[key.kind] = full.get(key.kind, 0) + 1
    errors = {kind: worst_error(kind) for kind in full}
    wrong = {kind: error for kind, error in errors.items() if error > TOLERANCE}
    if not wrong:
        return ""
    ops = " and ".join(f"{full[kind]} {kind}" for kind in wrong)
    return (
        f"{ops} op(s) use all 8 bits, for a CPU with VNNI; this CPU's kernels overflow "
        f"with them: measured here, the worst case loses {max(wrong.values()):.0%} of the result. "
        "Tune it again here, or with `target: avx2`, which is correct on every CPU"
    )


def _uses_all_bits(config: OpConfig) -> bool:
    """Sums overflow when neither side leaves a bit free."""
    if config.is_float or config.weight is None:
        return False
    return config.weight.bits == 8 and config.activation.bits == 8


# -- Giving memory back to the system once a big model is done with.


def give_back() -> None:
    """Freed memory stays with the process until the allocator is told to return it."""
    gc.collect()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    """glibc's malloc_trim; None where the C library is another."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
