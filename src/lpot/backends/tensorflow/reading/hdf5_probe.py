"""Run as a program: reads all there is in an HDF5 file, or in those of a .keras archive.

The library that reads them loops for ever in some damaged files, and crashes in others. So this is
done in a process of its own first (`hdf5.py`), with so many seconds of the CPU. Exit code 0: sound;
1: not, the last line says why.
"""

from __future__ import annotations

import contextlib
import io
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import h5py

LARGEST = 64  # times the file's own size: what data of no more than that may unpack to
PLENTY = 1 << 20  # bytes that are always granted


def main(path: str) -> str:
    """What is wrong with it, or nothing."""
    found: list[str] = []
    for name, stream in _files(path):
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        with h5py.File(stream, "r") as file:
            found += [f"{name}{fault}" for fault in _faults(file, size)]
    return "; ".join(found[:3])


def _files(path: str) -> Iterator[tuple[str, Any]]:
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as stream:  # noqa: PTH123
            yield "", stream
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith((".h5", ".hdf5")):
                yield name, io.BytesIO(archive.read(name))


def _faults(group: Any, size: int) -> Iterator[str]:
    seen: set[Any] = set()
    rest = [group]
    while rest:
        group = rest.pop()
        if group in seen:  # a group can be inside of itself
            continue
        seen.add(group)
        dict(group.attrs)
        for name in group:
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                yield f"{group.name}/{name} is a link, which may lead out of the file"
                continue
            item = group[name]
            dict(item.attrs)
            if isinstance(item, h5py.Group):
                rest.append(item)
            elif isinstance(item, h5py.Dataset):
                yield from _faults_of_data(item, size)


def _faults_of_data(data: Any, size: int) -> Iterator[str]:
    if data.external or data.is_virtual:
        yield f"{data.name} has its data in other files"
    elif data.nbytes > LARGEST * size + PLENTY:
        yield f"{data.name} would unpack to {data.nbytes >> 20} MiB"
    else:
        data[()]


def _bound(seconds: int) -> None:
    """Ends this process after so much work, however busy the machine is."""
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


if __name__ == "__main__":
    _bound(int(sys.argv[2]))
    if fault := main(sys.argv[1]):
        sys.exit(fault)
