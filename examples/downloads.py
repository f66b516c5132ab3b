"""Files that the examples fetch: where they are, how large they are, what they must contain.

    python downloads.py val2017.zip ./raw             fetch it, unless it is there already
    python downloads.py val2017.zip ./raw --unpack    and unpack it beside
    python downloads.py --list

A file that is not the one named here is refused. Archives can't write outside the folder, can't
hold links, and can't grow beyond all measure.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import lzma
import shutil
import stat
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

# No honest archive of ours grows more than eightfold; text that repeats itself may reach 50.
MOST_GROWTH = 100
FREE_GROWTH = 100_000_000  # bytes that any archive may have
MOST_FILES = 1_000_000
BLOCK = 1 << 20


@dataclass(frozen=True)
class Download:
    """One file of a publisher. Where nobody publishes a checksum it is empty, and that is told."""

    address: str
    size: int = 0
    checksum: str = ""  # SHA-256, or SHA-384 where only that is published

    @property
    def name(self) -> str:
        return self.address.rsplit("/", 1)[-1]


GLUE = "https://dl.fbaipublicfiles.com/glue/data"
MRPC = "https://dl.fbaipublicfiles.com/senteval/senteval_data"
SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
COCO = "http://images.cocodataset.org"
DETECTORS = "http://download.tensorflow.org/models/object_detection"
BERT = "https://storage.googleapis.com/bert_models"
INTEL = "https://storage.googleapis.com/intel-optimized-tensorflow/models"
# fmt: off
DOWNLOADS = {each.name: each for each in (
    Download(f"{GLUE}/CoLA.zip", 376_971,
             "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff"),
    Download(f"{GLUE}/SST-2.zip", 7_439_277,
             "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa"),
    Download(f"{GLUE}/STS-B.zip", 802_872,
             "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85"),
    Download(f"{GLUE}/QQP-clean.zip", 0,
             "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0"),
    Download(f"{GLUE}/MNLI.zip", 312_783_507,
             "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633"),
    Download(f"{GLUE}/QNLIv2.zip", 10_627_589,
             "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5"),
    Download(f"{GLUE}/RTE.zip", 697_150,
             "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee"),
    Download(f"{GLUE}/WNLI.zip", 28_999,
             "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46"),
    Download(f"{GLUE}/mrpc_dev_ids.tsv", 6_222,
             "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"),
    Download(f"{MRPC}/msr_paraphrase_train.txt", 1_047_044,
             "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"),
    Download(f"{MRPC}/msr_paraphrase_test.txt", 441_275,
             "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784"),
    Download(f"{SQUAD}/train-v1.1.json", 30_288_272,
             "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955"),
    Download(f"{SQUAD}/dev-v1.1.json", 4_854_279,
             "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9"),
    Download(f"{COCO}/annotations/annotations_trainval2017.zip", 252_907_541,
             "113a836d90195ee1f884e704da6304dfaaecff1f023f49b6ca93c4aaae470268"),
    Download(f"{COCO}/annotations/image_info_test2017.zip", 1_144_034,
             "e52f412dd7195ac8f98d782b44c6dd30ea10241e9f42521f67610fbe055a74f8"),
    Download(f"{COCO}/zips/train2017.zip", 19_336_861_798,
             "69a8bb58ea5f8f99d24875f21416de2e9ded3178e903f1f7603e283b9e06d929"),
    Download(f"{COCO}/zips/val2017.zip", 815_585_330,
             "4f7e2ccb2866ec5041993c9cf2a952bbed69647b115d0f74da7ce8f4bef82f05"),
    Download(f"{COCO}/zips/test2017.zip", 6_646_970_404,
             "c7908c3c9f94ba2f3340ebbeec58c25db6be8774f18d68c2f15d0e369d95baba"),
    Download(f"{DETECTORS}/ssd_mobilenet_v1_coco_2018_01_28.tar.gz", 76_541_073,
             "8788f89108519fd1102b8a5c2ac861cf6d86603571b6ce5bbd1c245b7fe005e3"),
    Download(f"{DETECTORS}/ssdlite_mobilenet_v2_coco_2018_05_09.tar.gz", 0,
             "542445cce834dbfbb7df1991425d475e85a2d7ec68c60a4f262bb18aac10c8b2"),
    Download(f"{DETECTORS}/ssd_resnet50_v1_fpn_shared_box_predictor_640x640_coco14_sync_2018_07_03"
             ".tar.gz", 366_947_246,
             "b5ff24a4a013130ebbbf5da71fbbd05a5df27825184632899650f45833ffb66b"),
    Download(f"{DETECTORS}/faster_rcnn_inception_v2_coco_2018_01_28.tar.gz", 149_119_618,
             "db3295e9a52d406540e84bdd056edeedbf938782a7bc4af7918aaa5dc30f0df5"),
    Download(f"{DETECTORS}/faster_rcnn_resnet101_coco_2018_01_28.tar.gz", 593_445_323,
             "d39799f52422740e78f66b9f8df2c360b232fb39a1d895d89dbebf71c4a9e653"
             "69b8d42f52e442552f13d11fe23ca758"),
    Download(f"{DETECTORS}/mask_rcnn_inception_v2_coco_2018_01_28.tar.gz", 177_817_887,
             "4f57861c2ff1c87e92495789ee266e41a7dc79a038521d93a153be403b0b601f"),
    Download(f"{BERT}/2019_05_30/wwm_uncased_L-24_H-1024_A-16.zip"),
    Download(f"{INTEL}/v1_8/bert_large_checkpoints.zip"),
)}
# fmt: on


class Refused(SystemExit):
    """A file that is not what it should be: told in one line, without a traceback."""


def fetched(name: str, folder: Path, told: Callable[[str], None] = print) -> Path:
    """The file in the folder: fetched unless it is there, and the one that is meant."""
    wanted, path = DOWNLOADS[name], folder / name
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{name}.part")
        try:
            _transfer(wanted, draft, told)
            check(draft, wanted, told)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    else:
        check(path, wanted, told)
    return path


def _transfer(wanted: Download, draft: Path, told: Callable[[str], None]) -> None:
    try:
        with urllib.request.urlopen(wanted.address, timeout=60) as source, draft.open("wb") as file:
            total = wanted.size or int(source.headers.get("Content-Length") or 0)
            told(f"{wanted.address}: {_megabytes(total)}")
            begin = last = time.monotonic()
            while block := source.read(BLOCK):
                file.write(block)
                if wanted.size and file.tell() > wanted.size:
                    raise Refused(f"{wanted.address}: longer than its {_megabytes(wanted.size)}")
                if total and time.monotonic() - last > 2:
                    last = time.monotonic()
                    left = (last - begin) * (total / file.tell() - 1)
                    told(f"{wanted.name}: {file.tell() / total:.0%}, {left:.0f} s left")
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        raise Refused(
            f"error: {wanted.address} can't be fetched ({error}). Fetch it elsewhere, and give "
            "--source with what you have"
        ) from error


def check(path: Path, wanted: Download, told: Callable[[str], None] = print) -> None:
    """Its size and its checksum are those that are known; if none is known, what it has is told."""
    size = path.stat().st_size
    if wanted.size and size != wanted.size:
        raise Refused(f"error: {path} has {size} bytes, {wanted.name} has {wanted.size}")
    digest = hashlib.new("sha384" if len(wanted.checksum) == 96 else "sha256")
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    if wanted.checksum and digest.hexdigest() != wanted.checksum:
        raise Refused(
            f"error: {path} is not the {wanted.name} that is meant: its {digest.name.upper()} is "
            f"{digest.hexdigest()}, not {wanted.checksum}. Remove it and try again"
        )
    if not wanted.checksum:
        told(f"{wanted.name}: its publisher names no checksum; SHA-256 {digest.hexdigest()}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size else "size unknown"


# -- archives ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    name: str
    size: int
    folder: bool
    open: Callable[[], IO[bytes]]


def unpacked(archive: Path, folder: Path) -> list[Path]:
    """The archive's files in the folder. Nothing is written unless all of it may be."""
    try:
        with _members(archive) as members:
            wanted = [(each, _place(each.name, folder, archive)) for each in members]
            for member, path in wanted:
                _write(member, path)
    except (
        tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError,
        NotImplementedError, RuntimeError,
    ) as error:  # fmt: skip
        raise Refused(f"error: {archive}: can't be unpacked: {error}") from error
    return [path for member, path in wanted if not member.folder]


@contextlib.contextmanager
def _members(archive: Path) -> Iterator[list[Member]]:
    """What is in it; links, devices and more than it may hold are refused."""
    allowed = FREE_GROWTH + MOST_GROWTH * archive.stat().st_size
    with contextlib.ExitStack() as stack:
        if zipfile.is_zipfile(archive):
            source: Iterator[Member] = _of_zip(stack.enter_context(zipfile.ZipFile(archive)))
        else:
            source = _of_tar(stack.enter_context(tarfile.open(archive)))
        found: list[Member] = []
        total = 0
        for member in source:
            found.append(member)
            total += member.size
            if total > allowed or len(found) > MOST_FILES:
                raise Refused(
                    f"error: {archive}: can't be unpacked: it has {_megabytes(allowed)} packed "
                    f"into {_megabytes(archive.stat().st_size)}, or {MOST_FILES} files, and more"
                )
        yield found


def _of_zip(opened: zipfile.ZipFile) -> Iterator[Member]:
    for info in opened.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise zipfile.BadZipFile(f"{info.filename!r} is a link or a device")
        yield Member(
            info.filename, info.file_size, info.is_dir(), lambda info=info: opened.open(info)
        )


def _of_tar(opened: tarfile.TarFile) -> Iterator[Member]:
    for info in opened:
        if not (info.isfile() or info.isdir()) or info.issparse():
            raise tarfile.TarError(f"{info.name!r} is a link, a device or a sparse file")

        def stream(info: tarfile.TarInfo = info) -> IO[bytes]:
            found = opened.extractfile(info)
            assert found is not None
            return found

        yield Member(info.name, info.size, info.isdir(), stream)


def _place(name: str, folder: Path, archive: Path) -> Path:
    """Where a member goes: inside the folder, also when that has links of its own."""
    parts = PurePosixPath(name).parts
    odd = not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name
    path = folder.joinpath(*parts) if not odd else folder
    if odd or ":" in parts[0] or not path.resolve().is_relative_to(folder.resolve()):
        raise Refused(f"error: {archive}: can't be unpacked: {name!r} points outside")
    return path


def _write(member: Member, path: Path) -> None:
    if member.folder:
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with member.open() as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, BLOCK)
        if target.tell() != member.size:
            raise OSError(f"{member.name!r} has {target.tell()} bytes, not {member.size}")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=DOWNLOADS, metavar="NAME")
    parser.add_argument("folder", nargs="?", type=Path, default=Path())
    parser.add_argument("--unpack", action="store_true")
    parser.add_argument("--list", action="store_true", help="names, sizes and checksums")
    given = parser.parse_args(words)
    if given.list or given.name is None:
        for each in DOWNLOADS.values():
            print(f"{each.name:45} {_megabytes(each.size):>15}  {each.checksum or 'no checksum'}")
        return 0
    path = fetched(given.name, given.folder)
    if given.unpack:
        unpacked(path, given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
