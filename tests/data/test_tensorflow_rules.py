"""The transforms that follow TensorFlow, against TensorFlow itself."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from lpot.data import TRANSFORMS
from lpot.data.record import RecordFile, parse_example
from lpot.data.transforms.resample import resize_two_taps

tf = pytest.importorskip("tensorflow")


@pytest.mark.parametrize("size", [(20, 31), (90, 70), (37, 53), (1, 1), (224, 224)])
def test_resize_is_bit_equal(picture, size):
    image = picture()
    wanted = tf.image.resize(image, size, method="bilinear").numpy()
    assert np.array_equal(resize_two_taps(image, size), wanted)


@pytest.mark.parametrize("fraction", [0.875, 0.5, 1.0])
def test_bilinear_imagenet(picture, fraction):
    image = picture(97, 131)
    x = tf.image.convert_image_dtype(image, tf.float32)
    x = tf.image.central_crop(x, fraction)
    x = tf.image.resize(x, [64, 48], method="bilinear")
    wanted = ((x - 0.5) * 2.0 - [0.1, 0.2, 0.3]) * 0.5
    options = dict(height=64, width=48, central_fraction=fraction)
    options |= dict(mean_value=[0.1, 0.2, 0.3], scale=0.5)
    ours = TRANSFORMS.make("BilinearImagenet", options)((image, 0))[0]
    assert ours.dtype == np.float32 and np.abs(ours - wanted.numpy()).max() < 2e-6


@pytest.mark.parametrize("shape", [(97, 131), (131, 97), (64, 64)])
def test_resize_crop_imagenet(picture, shape):
    image = picture(*shape)
    side = tf.constant(72.0) / min(shape)
    size = [int(tf.math.rint(side * edge)) for edge in shape]
    x = tf.image.resize(image, size)
    y0, x0 = (size[0] - 64) // 2, (size[1] - 64) // 2
    x = tf.image.crop_to_bounding_box(x, y0, x0, 64, 64)
    wanted = (x - [123.68, 116.78, 103.94]) * 0.017
    options = dict(height=64, width=64, resize_side=72, scale=0.017)
    options |= dict(mean_value=[123.68, 116.78, 103.94])
    ours = TRANSFORMS.make("ResizeCropImagenet", options)((image, 0))[0]
    assert np.abs(ours - wanted.numpy()).max() < 1e-6


def test_crop_to_bounding_box(picture):
    image = picture()
    options = dict(offset_height=3, offset_width=4, target_height=20, target_width=30)
    ours = TRANSFORMS.make("CropToBoundingBox", options)((image, 0))[0]
    assert np.array_equal(ours, tf.image.crop_to_bounding_box(image, 3, 4, 20, 30).numpy())


def test_nearest_and_cast_have_no_scaling(picture):
    image = picture()
    assert np.array_equal(
        TRANSFORMS.make("Cast", {"dtype": "float32"})((image, 0))[0],
        tf.cast(image, tf.float32).numpy(),
    )


def test_parse_decode_imagenet_against_tensorflow(jpeg, tmp_path):
    data = jpeg(40, 60)
    features = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[-3])),
        "image/object/bbox/xmin": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 1])),
        "empty": tf.train.Feature(),
    }
    record = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    path = str(tmp_path / "one.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(record)
        writer.write(b"")
    read = list(RecordFile(path))
    assert read == [record, b""]
    parsed = parse_example(record)
    assert parsed["image/encoded"] == [data]
    assert parsed["image/class/label"].tolist() == [-3]
    assert parsed["image/object/bbox/xmin"].tolist() == [0.5, 1.0]
    assert list(parsed["empty"]) == []
    image, label = TRANSFORMS.make("ParseDecodeImagenet", {})(record)
    # The accurate inverse transform of both libraries is the same one.
    wanted = tf.image.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE").numpy()
    assert np.array_equal(np.asarray(image), wanted) and label == -3
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), wanted)
