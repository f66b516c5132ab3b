"""Fetch a detector of the TF1 zoo and unpack it."""

from __future__ import annotations

import argparse
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

ZOO = "http://download.tensorflow.org/models/object_detection/"
FILES = {
    "ssd_resnet50_v1": (
        "ssd_resnet50_v1_fpn_shared_box_predictor_640x640_coco14_sync_2018_07_03.tar.gz"
    ),
    "ssd_mobilenet_v1": "ssd_mobilenet_v1_coco_2018_01_28.tar.gz",
    "faster_rcnn_inception_resnet_v2": "faster_rcnn_inception_v2_coco_2018_01_28.tar.gz",
    "faster_rcnn_resnet101": "faster_rcnn_resnet101_coco_2018_01_28.tar.gz",
    "mask_rcnn_inception_v2": "mask_rcnn_inception_v2_coco_2018_01_28.tar.gz",
    "ssdlite_mobilenet_v2": "ssdlite_mobilenet_v2_coco_2018_05_09.tar.gz",
}


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="prepare_model.py",
        description="Prepare pre-trained model for COCO object detection",
        add_help=False,
    )
    made = whole.add_argument_group("optional arguments")
    made.add_argument("-h", "--help", action="help", help="show this help message and exit")
    made.add_argument(
        "--model_name",
        choices=FILES,
        metavar="{ssd_resnet50_v1,ssd_mobilenet_v1}",  # as the tutorial shows; all of FILES work
        default="ssd_resnet50_v1",
        help="model to download, default is ssd_resnet50_v1",
    )
    made.add_argument(
        "--model_path", default="./model", help="directory to put models, default is ./model"
    )
    made.add_argument("--source", type=Path, help=argparse.SUPPRESS)  # a .tar.gz already here
    return whole


def fetch(address: str, target: Path) -> None:
    draft = target.with_name(f".{target.name}.part")
    try:
        urllib.request.urlretrieve(address, draft)
    except (urllib.error.URLError, OSError) as error:
        draft.unlink(missing_ok=True)
        raise SystemExit(
            f"{address}: can't be fetched ({error}). Fetch it elsewhere, and give the file with "
            f"--source={target.name}"
        ) from error
    draft.replace(target)


def unpack(archive: Path, folder: Path) -> Path:
    """The archive's one folder; members that point outside are refused."""
    try:
        with tarfile.open(archive) as opened:
            names = opened.getnames()
            opened.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SystemExit(f"{archive}: can't be unpacked: {error}") from error
    return folder / Path(names[0]).parts[0]


def main() -> None:
    options = parser().parse_args()
    folder = Path(options.model_path)
    folder.mkdir(parents=True, exist_ok=True)
    archive = options.source or folder / FILES[options.model_name]
    if not archive.exists():
        fetch(ZOO + FILES[options.model_name], archive)
    print(unpack(archive, folder))


if __name__ == "__main__":
    main()
