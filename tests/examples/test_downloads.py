"""What the examples fetch is the file that is meant, and no archive does harm."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import stat
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "downloads.py"


@pytest.fixture(scope="module")
def downloads() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples_downloads", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# -- archives ----------------------------------------------------------------------------------


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def entry(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, content


def zip_of(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def zip_link(path: Path) -> Path:
    info = zipfile.ZipInfo("net/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/plain", b"x")
        archive.writestr(info, "/etc/passwd")
    return path


def sparse_tar(path: Path) -> Path:
    """A header of GNU's old sparse form: a file of 8 GB in two blocks."""
    info, _ = entry("net/holes", b"", tarfile.GNUTYPE_SPARSE)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % (8 << 30)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(bytes(header) + bytes(1024))
    return path


def overlapping_zip(path: Path) -> Path:
    """Many names for the same packed bytes: 40 KB that would become a gigabyte."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(10_000_000))
        (first,) = archive.infolist()
        for number in range(100):
            copy = zipfile.ZipInfo(f"zeros{number}")
            for name in ("compress_type", "CRC", "compress_size", "file_size", "header_offset"):
                setattr(copy, name, getattr(first, name))
            archive.filelist.append(copy)
            archive.NameToInfo[copy.filename] = copy
        archive._didModify = True
    path.write_bytes(whole.getvalue())
    return path


def file_of(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def cut(path: Path) -> Path:
    return file_of(path, path.read_bytes()[: path.stat().st_size // 2])


OUTSIDE: dict[str, Callable[[Path], Path]] = {
    "tar-parent": lambda at: tar_of(at / "a.tgz", entry("net/ok"), entry("../evil")),
    "tar-deep-parent": lambda at: tar_of(at / "a.tgz", entry("net/../../evil")),
    "tar-absolute": lambda at: tar_of(at / "a.tgz", entry(f"{at}/evil")),
    "zip-parent": lambda at: zip_of(at / "a.zip", ("net/ok", b"x"), ("../evil", b"x")),
    "zip-absolute": lambda at: zip_of(at / "a.zip", (f"{at}/evil", b"x")),
    "zip-backslash": lambda at: zip_of(at / "a.zip", ("..\\evil", b"x")),
    "zip-drive": lambda at: zip_of(at / "a.zip", ("C:/evil", b"x")),
}
LINKS: dict[str, Callable[[Path], Path]] = {
    "tar-symlink": lambda at: tar_of(
        at / "a.tgz", entry("net/ok"), entry("net/link", b"", tarfile.SYMTYPE, "/etc/passwd")
    ),
    "tar-inner-symlink": lambda at: tar_of(
        at / "a.tgz", entry("net/ok"), entry("net/link", b"", tarfile.SYMTYPE, "ok")
    ),
    "tar-hardlink": lambda at: tar_of(
        at / "a.tgz", entry("net/ok"), entry("net/link", b"", tarfile.LNKTYPE, "../../evil")
    ),
    "tar-fifo": lambda at: tar_of(at / "a.tgz", entry("net/pipe", b"", tarfile.FIFOTYPE)),
    "tar-device": lambda at: tar_of(at / "a.tgz", entry("net/null", b"", tarfile.CHRTYPE)),
    "tar-sparse": lambda at: sparse_tar(at / "a.tar"),
    "zip-symlink": lambda at: zip_link(at / "a.zip"),
}
BOMBS: dict[str, Callable[[Path], Path]] = {
    "tar-zeros": lambda at: tar_of(at / "a.tgz", entry("zeros", bytes(150_000_000))),
    "zip-zeros": lambda at: zip_of(at / "a.zip", ("zeros", bytes(150_000_000))),
    "zip-overlapping": lambda at: overlapping_zip(at / "a.zip"),
}
BROKEN: dict[str, Callable[[Path], Path]] = {
    "tar-cut": lambda at: cut(tar_of(at / "a.tgz", entry("net/noise", os.urandom(20_000)))),
    "zip-cut": lambda at: cut(zip_of(at / "a.zip", ("net/noise", os.urandom(20_000)))),
    "html": lambda at: file_of(at / "a.zip", b"<h1>404</h1>"),
    "empty": lambda at: file_of(at / "a.tgz", b""),
}


@pytest.mark.parametrize("name", [*OUTSIDE, *LINKS, *BOMBS, *BROKEN])
def test_a_hostile_archive_is_refused_before_anything_is_written(
    name: str, downloads: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "FREE_GROWTH", 100_000)
    archive = (OUTSIDE | LINKS | BOMBS | BROKEN)[name](tmp_path)
    with pytest.raises(SystemExit) as refused:
        downloads.unpacked(archive, tmp_path / "out")
    told = str(refused.value)
    assert "can't be unpacked" in told and str(archive) in told
    word = {**dict.fromkeys(OUTSIDE, "points outside"), **dict.fromkeys(LINKS, "is a link")}
    assert word.get(name, "packed into" if name in BOMBS else "") in told
    assert {path.name for path in tmp_path.iterdir()} <= {archive.name, "out"}
    written = [path for path in tmp_path.joinpath("out").rglob("*") if path.is_file()]
    assert not written or name in BROKEN


def test_a_member_that_lies_about_its_size_is_refused(
    downloads: ModuleType, tmp_path: Path
) -> None:
    """The list says ten bytes; the packed stream has a million."""
    path = zip_of(tmp_path / "a.zip", ("net/a", bytes(1_000_000)))
    raw = bytearray(path.read_bytes())
    directory = raw.index(b"PK\1\2")
    raw[directory + 24 : directory + 28] = (10).to_bytes(4, "little")
    path.write_bytes(bytes(raw))
    with pytest.raises(SystemExit, match="can't be unpacked"):
        downloads.unpacked(path, tmp_path / "out")
    assert sum(each.stat().st_size for each in tmp_path.rglob("out/**/*") if each.is_file()) <= 10


def test_too_many_files_are_refused(
    downloads: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MOST_FILES", 10)
    path = zip_of(tmp_path / "a.zip", *((f"f{n}", b"") for n in range(11)))
    with pytest.raises(SystemExit, match="10 files"):
        downloads.unpacked(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_that_was_there_before_leads_nowhere(downloads: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "net").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SystemExit, match="points outside"):
        downloads.unpacked(tar_of(tmp_path / "a.tgz", entry("net/a")), tmp_path / "out")
    assert not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_an_honest_archive_is_unpacked(
    make: Callable[..., Path], downloads: ModuleType, tmp_path: Path
) -> None:
    content = [("net/a.pb", b"abc"), ("net/deep/b.txt", b"" * 2)]
    members = [entry(*each) for each in content] if make is tar_of else content
    written = downloads.unpacked(make(tmp_path / "a", *members), tmp_path / "out")
    assert {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in written} == dict(
        content
    )


# -- downloads ---------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and where a server of this machine shows it."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "changed, word",
    [
        ({}, ""),
        ({"checksum": ""}, "names no checksum"),
        ({"size": 999}, "longer than its"),
        ({"size": 1001}, "has 1000 bytes"),
        ({"size": 0, "checksum": "0" * 64}, "SHA256"),
        ({"checksum": "0" * 96}, "SHA384"),
        ({"address": "nowhere"}, "can't be fetched"),
    ],
)
def test_only_the_file_that_is_meant_is_kept(
    changed: dict[str, object],
    word: str,
    downloads: ModuleType,
    served: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, address = served
    content = bytes(range(250)) * 4
    (folder / "net.zip").write_bytes(content)
    facts = {"size": 1000, "checksum": hashlib.sha256(content).hexdigest(), **changed}
    wanted = downloads.Download(
        f"{address}/{changed.get('address', '')}/net.zip".replace("//net", "/net"),
        facts["size"],
        facts["checksum"],
    )
    monkeypatch.setitem(downloads.DOWNLOADS, "net.zip", wanted)
    told: list[str] = []
    try:
        path = downloads.fetched("net.zip", tmp_path / "raw", told.append)
        assert path.read_bytes() == content
        assert "1000" in " ".join(told) or "0.0 MB" in " ".join(told)
    except SystemExit as refused:
        told.append(str(refused))
        assert not [*(tmp_path / "raw").iterdir()]
    assert word in " ".join(told)
    assert (tmp_path / "raw" / "net.zip").exists() == (word in ("", "names no checksum"))


def test_a_file_that_is_there_is_checked_and_not_fetched(
    downloads: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"as it was"
    right = hashlib.sha256(content).hexdigest()
    wanted = downloads.Download("http://127.0.0.1:9/net.zip", len(content), right)
    monkeypatch.setitem(downloads.DOWNLOADS, "net.zip", wanted)
    (tmp_path / "net.zip").write_bytes(content)
    assert downloads.fetched("net.zip", tmp_path) == tmp_path / "net.zip"
    (tmp_path / "net.zip").write_bytes(b"changed !")
    with pytest.raises(SystemExit, match=r"is not the net\.zip that is meant"):
        downloads.fetched("net.zip", tmp_path)


def test_the_table_is_well_formed(
    downloads: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert downloads.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(downloads.DOWNLOADS) > 20
    known = [each for each in downloads.DOWNLOADS.values() if each.checksum]
    assert all(len(each.checksum) in (64, 96) for each in known)
    assert len({each.checksum for each in known}) == len(known) >= len(lines) - 2
