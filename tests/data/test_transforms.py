"""Each transform against Pillow, numpy or a figure worked out by hand."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lpot.core.errors import ConfigError, DataError
from lpot.data import TRANSFORMS, compose, transform_registry
from lpot.data.draw import drawing
from lpot.data.transforms import Compose, Transform, apply

METHODS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def run(name: str, image: Any, **options: Any) -> Any:
    return TRANSFORMS.make(name, options)((image, 7))[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [(20, 31), (90, 70)])
def test_resize_equals_pillow(picture, method, size):
    image = picture()
    wanted = np.asarray(Image.fromarray(image).resize(size[::-1], METHODS[method]))
    from_array = run("Resize", image, size=list(size), interpolation=method)
    from_pillow = run("Resize", Image.fromarray(image), size=list(size), interpolation=method)
    assert np.array_equal(from_array, wanted)
    assert np.array_equal(np.asarray(from_pillow), wanted)


def test_resize_of_floats_is_pillow_without_rounding(picture):
    image = picture()
    exact = run("Resize", image.astype(np.float32), size=[20, 31])
    rounded = run("Resize", image, size=[20, 31])
    assert exact.dtype == np.float32
    assert np.abs(exact - rounded).max() <= 1  # Pillow rounds after each axis
    assert run("Resize", image[:, :, :1], size=9).shape == (9, 9, 1)
    assert run("Resize", image[:, :, 0], size=9).shape == (9, 9)


def test_resize_square_or_ratio(picture):
    image = picture(40, 60)
    assert run("Resize", image, size=20).shape == (20, 20, 3)
    assert run("Resize", image, size=20, keep_ratio=True).shape == (20, 30, 3)
    assert run("Resize", picture(60, 40), size=20, keep_ratio=True).shape == (30, 20, 3)
    with pytest.raises(ConfigError, match="keep_ratio takes one number"):
        run("Resize", image, size=[20, 30], keep_ratio=True)


def test_center_crop_and_bounding_box(picture):
    image = picture(37, 53)
    assert np.array_equal(run("CenterCrop", image, size=[10, 20]), image[13:23, 16:36])
    box = dict(offset_height=2, offset_width=3, target_height=5, target_width=7)
    assert np.array_equal(run("CropToBoundingBox", image, **box), image[2:7, 3:10])
    from_pillow = run("CropToBoundingBox", Image.fromarray(image), **box)
    assert np.array_equal(np.asarray(from_pillow), image[2:7, 3:10])
    with pytest.raises(DataError, match=r"50x50 .* image of 37x53"):
        run("CenterCrop", image, size=50)


def test_padded_center_crop(picture):
    image = picture(100, 120)
    cropped = run("PaddedCenterCrop", image, size=[224, 224], crop_padding=32)
    side = int(224 / 256 * 100)
    assert np.array_equal(cropped, image[7 : 7 + side, 17 : 17 + side])
    with pytest.raises(ConfigError, match="squares"):
        run("PaddedCenterCrop", image, size=[224, 200])


def test_normalize_last_first_and_single(picture):
    image, mean, std = picture(), [120.0, 110.0, 100.0], [60.0, 50.0, 40.0]
    wanted = (image.astype(np.float32) - np.float32(mean)) / np.float32(std)
    done = run("Normalize", image, mean=mean, std=std)
    assert done.dtype == np.float32 and np.array_equal(done, wanted)
    first = run("Normalize", image.transpose(2, 0, 1), mean=mean, std=std)
    assert np.array_equal(first, wanted.transpose(2, 0, 1))
    assert np.array_equal(run("Normalize", image, mean="1", std=[2.0]), (image - np.float32(1)) / 2)
    with pytest.raises(ConfigError, match="no axis of 2 channels"):
        run("Normalize", image, mean=[1, 2], std=[1, 2])
    with pytest.raises(ConfigError, match="above zero"):
        run("Normalize", image, mean=0.0, std=0.0)


def test_normalize_leaves_the_source_alone(picture):
    image = picture().astype(np.float32)
    before = image.copy()
    run("Normalize", image, mean=5.0, std=2.0)
    assert np.array_equal(image, before)


@pytest.mark.parametrize("before", ["ToTensor", "Rescale", "Cast", "Normalize", "ToArray"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
def test_in_place_steps_change_no_number_and_no_source(picture, before, dtype, channels):
    image = picture(8, 9, channels).astype(dtype)
    copy = image.copy()
    normalize = TRANSFORMS.make("Normalize", {"mean": 3.0, "std": 2.0})
    first = TRANSFORMS.make(before, {})
    apart = normalize(first((image, 0)))[0]
    chained = Compose([first, normalize])((image, 0))[0]
    assert np.array_equal(apart, chained) and np.array_equal(image, copy)


def test_to_tensor_rescale_cast(picture):
    image = picture()
    tensor = run("ToTensor", Image.fromarray(image))
    assert tensor.shape == (3, 37, 53) and tensor.dtype == np.float32
    assert np.array_equal(tensor, image.transpose(2, 0, 1).astype(np.float32) / np.float32(255))
    assert np.array_equal(run("Rescale", image), image.astype(np.float32) / np.float32(255))
    assert run("Cast", image, dtype="int64").dtype == np.int64
    assert run("ToTensor", picture(8, 8, 1)).shape == (1, 8, 8)
    with pytest.raises(ConfigError, match="did you mean 'float32'"):
        run("Cast", image, dtype="flaot32")


def test_to_pillow_and_back(picture):
    image = picture()
    assert np.array_equal(np.asarray(run("ToPILImage", image)), image)
    assert np.array_equal(np.asarray(run("ToPILImage", run("ToTensor", image))), image)
    assert np.array_equal(run("ToArray", Image.fromarray(image)), image)
    assert run("ToNDArray", Image.fromarray(image).convert("L")).shape == (37, 53, 1)


def test_align_image_channel(picture):
    image = picture()
    grey = np.asarray(Image.fromarray(image).convert("L"))
    assert np.array_equal(run("AlignImageChannel", image, dim=1)[:, :, 0], grey)
    assert run("AlignImageChannel", grey, dim=3).shape == (37, 53, 3)
    assert run("AlignImageChannel", picture(9, 9, 4), dim=3).shape == (9, 9, 3)
    assert run("AlignImageChannel", Image.fromarray(image), dim=1).mode == "L"
    with pytest.raises(DataError, match="5 channels can't be aligned to 3"):
        run("AlignImageChannel", np.zeros((4, 4, 5), np.uint8), dim=3)


def test_transpose_and_pad(picture):
    image = picture()
    assert np.array_equal(run("Transpose", image, perm=[2, 0, 1]), image.transpose(2, 0, 1))
    with pytest.raises(ConfigError, match="each axis once"):
        run("Transpose", image, perm=[2, 2, 1])
    with pytest.raises(DataError, match="does not fit"):
        run("Transpose", image, perm=[1, 0])
    padded = run("Pad", image, padding=[1, 2, 3, 4], fill=9)
    assert padded.shape == (37 + 6, 53 + 4, 3)
    assert np.array_equal(padded[2:-4, 1:-3], image) and (padded[0] == 9).all()
    assert np.array_equal(
        run("Pad", image, padding=2, padding_mode="reflect"),
        np.pad(image, [(2, 2), (2, 2), (0, 0)], mode="reflect"),
    )


def test_crop_resize(picture):
    image = picture()
    wanted = Image.fromarray(image[3:23, 5:35]).resize((12, 10), Image.Resampling.BILINEAR)
    done = run("CropResize", image, x=5, y=3, width=30, height=20, size=[10, 12])
    assert np.array_equal(done, np.asarray(wanted))


def test_resize_with_aspect_ratio(picture):
    resized = run("ResizeWithAspectRatio", picture(100, 150), height=28, width=28)
    assert resized.shape == (32, 48, 3)
    wanted = Image.fromarray(picture(100, 150)).resize((48, 32), Image.Resampling.BOX)
    assert np.array_equal(resized, np.asarray(wanted))


def test_resize_with_ratio_moves_boxes(picture):
    transform = TRANSFORMS.make("ResizeWithRatio", dict(min_dim=40, max_dim=60, padding=True))
    boxes = np.float32([[0, 0, 1, 1]])
    label = (boxes, np.asarray([b"cat"]), np.asarray([17]), np.asarray(b"1.jpg"))
    image, moved = transform((picture(20, 50), label))
    assert image.shape == (60, 60, 3) and image.dtype == np.uint8
    # 20x50 grows to 24x60 and is set into the middle of 60x60.
    assert np.allclose(moved[0], [[18 / 60, 0, 42 / 60, 1]])
    assert (image[:18] == 0).all() and (image[42:] == 0).all()
    assert moved[1:] == label[1:]
    plain, same = TRANSFORMS.make("ResizeWithRatio", dict(min_dim=40, max_dim=60))((image, label))
    assert plain.shape == (60, 60, 3) and same is label


def test_quantized_input():
    image = np.asarray([[-2.0, 0.0, 1.0, 900.0]], dtype=np.float32)
    assert run("QuantizedInput", image, dtype="uint8") is image
    assert run("QuantizedInput", image, dtype="uint8", scale=2).tolist() == [[124, 128, 130, 255]]
    assert run("QuantizedInput", image, dtype="int8", scale=2).tolist() == [[-4, 0, 2, 127]]


def test_decode_and_encode(jpeg):
    data = jpeg(20, 30)
    image = run("DecodeImage", data)
    assert np.array_equal(np.asarray(image), np.asarray(Image.open(io.BytesIO(data))))
    assert run("EncodeJpeg", image).startswith(b"\xff\xd8")
    with pytest.raises(DataError, match="can't be decoded"):
        run("DecodeImage", b"not an image")


RANDOM = {
    "RandomCrop": {"size": [10, 12]},
    "RandomHorizontalFlip": {},
    "RandomVerticalFlip": {},
    "RandomResizedCrop": {"size": 16},
    "ColorJitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0.2},
    "ResizeCropImagenet": {
        "height": 16,
        "width": 16,
        "resize_side": 24,
        "random_crop": True,
        "random_flip_left_right": True,
    },
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_transforms_follow_the_seed(picture, name):
    def draws(seed: int) -> list[bytes]:
        results = []
        for sample in range(8):
            with drawing(seed, 0, sample):
                results.append(np.asarray(run(name, picture(), **RANDOM[name])).tobytes())
        return results

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)
    assert len(set(draws(1))) > 1


def test_random_crop_is_a_part_of_the_image(picture):
    image = picture(12, 12)
    for sample in range(5):
        with drawing(sample):
            part = run("RandomCrop", image, size=11)
        assert any(
            np.array_equal(part, image[y : y + 11, x : x + 11]) for y in (0, 1) for x in (0, 1)
        )
    assert np.array_equal(run("RandomCrop", image, size=12), image)
    with pytest.raises(DataError, match="13x13"):
        run("RandomCrop", image, size=13)


def test_resize_crop_imagenet_two_forms(picture):
    image = picture(60, 80)
    plain = run("ResizeCropImagenet", image, height=32, width=32, resize_side=40)
    assert plain.shape == (32, 32, 3) and plain.max() > 1
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    unit = run("ResizeCropImagenet", image, height=32, width=32, resize_side=40, mean_value=mean)
    assert unit.shape == (3, 32, 32)
    wanted = ((plain / 255 - mean) / std).transpose(2, 0, 1)
    assert np.allclose(unit, wanted, atol=1e-5)
    grey = run("ResizeCropImagenet", image[:, :, :1], height=32, width=32, resize_side=40)
    assert grey.shape == (32, 32, 3)
    with pytest.raises(ConfigError, match="resize_side 16 is shorter"):
        run("ResizeCropImagenet", image, height=32, width=32, resize_side=16)


def test_compose_keeps_the_order(picture):
    chain = compose({"Resize": {"size": 20}, "CenterCrop": 10, "ToTensor": None})
    assert [type(t).__name__ for t in chain.transform_list] == ["Resize", "CenterCrop", "ToTensor"]
    image, label = chain((picture(), 3))
    assert image.shape == (3, 10, 10) and label == 3
    assert compose(None)((1, 2)) == (1, 2)


def test_compose_complains_by_path():
    with pytest.raises(ConfigError, match=r"transform.Rezise: .*did you mean 'Resize'") as caught:
        compose({"Rezise": {"size": 2}})
    assert caught.value.path == "transform.Rezise"
    with pytest.raises(ConfigError, match="no argument 'sise', did you mean 'size'"):
        compose({"Resize": {"sise": 2}})
    with pytest.raises(ConfigError, match="transform Resize needs size"):
        compose({"Resize": {}})
    with pytest.raises(ConfigError, match=r"interpolation 'bilinea' .*did you mean 'bilinear'"):
        compose({"Resize": {"size": 2, "interpolation": "bilinea"}})
    with pytest.raises(ConfigError, match="expected transform names"):
        compose(["Resize"])


def test_a_users_transform_gets_an_array(picture):
    seen = []

    @transform_registry(transform_type="Mine", process="preprocess", framework="pytorch")
    class Mine:
        def __init__(self, add: int = 1) -> None:
            self.add = add

        def __call__(self, sample):
            image, label = sample
            seen.append(type(image))
            return image, label + self.add

    try:
        chain = compose({"Resize": 8, "Mine": {"add": 5}, "ToPILImage": {}, "Rescale": {}})
        assert chain((Image.fromarray(picture()), 1))[1] == 6
        assert seen == [np.ndarray]
        assert isinstance(Compose([TRANSFORMS["ToPILImage"](), Mine()]), Transform)
        Compose([TRANSFORMS["ToPILImage"](), Mine()])((picture(), 1))
        assert seen[-1] is Image.Image
        assert "Mine" in TRANSFORMS("tensorflow", "preprocess")
    finally:
        TRANSFORMS.remove("Mine")
    assert "Mine" not in TRANSFORMS


def test_a_subclass_of_transform_gets_an_array_too(picture):
    class Mine(Transform):
        def __call__(self, sample):
            assert isinstance(sample[0], np.ndarray)
            return sample

    assert Compose([TRANSFORMS.make("Resize", {"size": 4}), Mine()])(
        (Image.fromarray(picture()), 0)
    )[0].shape == (4, 4, 3)


def test_postprocess_goes_to_its_own_registry():
    from lpot.data.postprocess import POSTPROCESSES

    assert TRANSFORMS("tensorflow", "postprocess") is POSTPROCESSES
    transform_registry(transform_type="Mine", process="postprocess", framework="x")(dict)
    try:
        assert "Mine" in POSTPROCESSES and "Mine" not in TRANSFORMS
    finally:
        POSTPROCESSES.remove("Mine")


def test_apply_hands_back_arrays(picture):
    image = Image.fromarray(picture())
    assert isinstance(apply(None, (image, 1))[0], np.ndarray)
    assert isinstance(apply(compose({"Resize": 5}), (image, 1))[0], np.ndarray)
    assert apply(lambda sample: (type(sample[0]), 2), (image, 1)) == (np.ndarray, 2)


def test_every_name_of_the_contract_is_there():
    names = (
        "Compose Cast CropToBoundingBox ResizeWithRatio Transpose ToArray Resize CropResize "
        "CenterCrop RandomCrop RandomResizedCrop RandomHorizontalFlip RandomVerticalFlip Normalize "
        "AlignImageChannel Rescale PaddedCenterCrop QuantizedInput ParseDecodeImagenet "
        "ParseDecodeCoco ParseDecodeVoc BilinearImagenet ResizeCropImagenet ResizeWithAspectRatio "
        "ToNDArray ToTensor ToPILImage Pad ColorJitter"
    )
    assert set(names.split()) <= set(TRANSFORMS)
