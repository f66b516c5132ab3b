"""Fetch a detector of the TF1 zoo and unpack it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import downloads

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


def unpack(archive: Path, folder: Path) -> Path:
    """The archive's one folder; links, and members that point outside, are refused."""
    written = downloads.unpacked(archive, folder)
    if not written:
        raise SystemExit(f"{archive}: can't be unpacked: it is empty")
    return folder / written[0].relative_to(folder).parts[0]


def main() -> None:
    options = parser().parse_args()
    folder = Path(options.model_path)
    folder.mkdir(parents=True, exist_ok=True)
    archive = options.source or downloads.fetched(FILES[options.model_name], folder)
    print(unpack(archive, folder))


if __name__ == "__main__":
    main()
