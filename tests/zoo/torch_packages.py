"""Architectures of timm and torchvision, with random weights.

Both come with the extra `zoo`. A torchvision that was built for another kind of torch has no
operators of its own; its architectures need one of them at import only.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

HELP = "pip install --constraint constraints.txt '.[zoo]'"

# Name → side of the images.
TIMM: Mapping[str, int] = {
    "resnet10t": 64,
    "resnet18d": 64,
    "resnetv2_50": 64,
    "seresnet18": 64,
    "skresnet18": 64,
    "resnest14d": 64,
    "regnetx_002": 64,
    "regnety_002": 64,
    "repvgg_a0": 64,
    "rexnet_100": 64,
    "ghostnet_050": 64,
    "ghostnetv2_100": 64,
    "efficientnet_b0": 64,
    "efficientnet_lite0": 64,
    "tf_efficientnet_b0": 64,
    "mobilenetv2_050": 64,
    "mobilenetv3_small_050": 64,
    "mobilenetv3_large_100": 64,
    "mobilenetv4_conv_small_050": 64,
    "mnasnet_small": 64,
    "lcnet_050": 64,
    "tinynet_e": 64,
    "semnasnet_075": 64,
    "dla46_c": 64,
    "ese_vovnet19b_slim": 64,
    "selecsls42": 64,
    "hardcorenas_a": 64,
    "cspresnet50": 64,
    "test_nfnet": 64,
    "convnext_atto": 64,
    "edgenext_xx_small": 64,
    "fastvit_t8": 64,
    "repvit_m0_9": 64,
    "efficientvit_b0": 64,
    "mobilevit_xxs": 64,
    "mobileone_s0": 64,
    "levit_128s": 224,
    "vit_tiny_patch16_224": 224,
    "deit_tiny_patch16_224": 224,
    "test_vit": 160,
    "mixer_s32_224": 224,
    "gmlp_ti16_224": 224,
    "resmlp_12_224": 224,
    "pit_ti_224": 224,
    "beit_base_patch16_224": 224,
    "swin_tiny_patch4_window7_224": 224,
    "xcit_nano_12_p16_224": 224,
    "tiny_vit_5m_224": 224,
    "eva02_tiny_patch14_224": 224,
    "poolformerv2_s12": 64,
    "mambaout_femto": 64,
    "convmixer_768_32": 28,
    "convnextv2_atto": 64,
    "swinv2_cr_tiny_ns_224": 224,
    "maxvit_rmlp_pico_rw_256": 256,
    "coatnet_nano_rw_224": 224,
    "efficientformer_l1": 224,
    "efficientformerv2_s0": 224,
    "crossvit_tiny_240": 240,
    "twins_svt_small": 64,
    "davit_tiny": 64,
    "nest_tiny_jx": 224,
    "cait_xxs24_224": 224,
    "convit_tiny": 224,
    "visformer_tiny": 224,
    "sequencer2d_s": 224,
    "hrnet_w18_small": 64,
    "res2net50_14w_8s": 64,
    "inception_v4": 96,
    "xception41": 96,
    "darknet53": 64,
    "botnet26t_256": 256,
    "halonet26t": 256,
    "lambda_resnet26t": 256,
    "gcresnet33ts": 64,
    "hiera_tiny_224": 224,
    "starnet_s1": 64,
    "swiftformer_xs": 64,
    "inception_next_tiny": 64,
    "efficientvit_m0": 224,
    "vit_medium_patch16_reg4_gap_256": 256,
}
# Made smaller where the real one is large.
_SMALLER: Mapping[str, Mapping[str, Any]] = {
    "beit_base_patch16_224": {"embed_dim": 64, "depth": 2, "num_heads": 4},
    "swin_tiny_patch4_window7_224": {"embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)},
    "swinv2_cr_tiny_ns_224": {"embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)},
    "vit_medium_patch16_reg4_gap_256": {"embed_dim": 64, "depth": 2, "num_heads": 4},
    "cspresnet50": {},
}
TORCHVISION: Mapping[str, int] = {
    "resnet18": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64,
    "mnasnet0_5": 64,
    "efficientnet_b0": 64,
    "regnet_y_400mf": 64,
    "googlenet": 96,
    "densenet121": 64,
    "swin_t": 64,
    "swin_v2_t": 64,
    "vit_b_32": 64,
    "convnext_tiny": 64,
    "segmentation.lraspp_mobilenet_v3_large": 64,
    "segmentation.fcn_resnet50": 64,
    "video.r3d_18": 32,
    "vgg11_bn": 64,
    "inception_v3": 96,
    "maxvit_t": 56,
    "segmentation.deeplabv3_mobilenet_v3_large": 64,
    "video.mc3_18": 32,
    "detection.retinanet_resnet50_fpn": 64,
    "detection.fcos_resnet50_fpn": 64,
    "detection.fasterrcnn_mobilenet_v3_large_320_fpn": 64,
    "detection.ssdlite320_mobilenet_v3_large": 64,
}


def torchvision() -> Any:
    """The package, also where its operators don't fit this torch; None where it is not there."""
    if importlib.util.find_spec("torchvision") is None:
        return None
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        _define_operators()
        importlib.import_module("torchvision.ops.boxes")._assert_has_ops = lambda: None
        return importlib.import_module("torchvision")


_kept: list[Any] = []


def _define_operators() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _nms, "CPU")
    _kept.append(library)


def _nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    order, kept = scores.argsort(descending=True), []
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[order, :2])
        high = torch.minimum(boxes[best, 2:], boxes[order, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        order = order[shared / (area[best] + area[order] - shared) <= threshold]
    return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.long)


def timm() -> Any:
    if importlib.util.find_spec("timm") is None or torchvision() is None:
        return None
    return importlib.import_module("timm")


def make_timm(name: str) -> nn.Module:
    made: nn.Module = timm().create_model(
        name, pretrained=False, num_classes=10, **_SMALLER.get(name, {})
    )
    return made


def make_torchvision(name: str) -> nn.Module:
    models = torchvision().models
    if name == "vit_b_32":
        return _made(models.VisionTransformer(64, 16, 2, 4, 64, 128, num_classes=10))
    if name == "maxvit_t":
        parts = ([16, 32], [1, 1])  # channels and layers of its blocks
        return _made(models.MaxVit((56, 56), 16, 7, *parts, 8, 0.0, num_classes=10))
    extra: dict[str, Any] = {"weights": None}
    if "." in name and not name.startswith("video"):
        extra["weights_backbone"] = None
    if name.startswith("detection") and "ssd" not in name:
        extra |= {"min_size": 64, "max_size": 96}  # else they enlarge what they get
    made = _made(models.get_model(name.rpartition(".")[2], **extra))
    if name == "vgg11_bn":
        made.classifier = nn.Linear(512 * 7 * 7, 10)
    return made


def _made(module: Any) -> nn.Module:
    built: nn.Module = module
    return built
