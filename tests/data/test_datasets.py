"""Image datasets from tiny originals and from the real files; each fault names its file."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lpot.core.errors import ConfigError, DataError
from lpot.data import DATASETS, Dataset, dataset_registry, get_dataset
from lpot.data.datasets.cifar import RestrictedUnpickler, load_plain


def cifar_rows(count: int = 4) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)


def cifar_pickle(
    labels: list[int], key: bytes = b"labels", rows: np.ndarray | None = None
) -> bytes:
    data = cifar_rows(len(labels)) if rows is None else rows
    # Protocol 2 is what the published files use.
    return pickle.dumps({b"data": data, key: labels, b"batch_label": b"x"}, protocol=2)


def as_image(row: np.ndarray) -> np.ndarray:
    return row.reshape(3, 32, 32).transpose(1, 2, 0)


@pytest.fixture
def cifar10(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(cifar_pickle([3, 1, 4, 1]))
    for number in range(1, 6):
        (folder / f"data_batch_{number}").write_bytes(cifar_pickle([number, 0]))
    return tmp_path


def test_cifar10_python_version(cifar10):
    dataset = get_dataset("CIFAR10", root=str(cifar10))
    image, label = dataset[2]
    assert len(dataset) == 4 and label == 4
    assert np.array_equal(image, as_image(cifar_rows()[2]))
    train = get_dataset("CIFAR10", root=str(cifar10), train=True)
    assert [label for _, label in train] == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]


def test_cifar10_as_python_2_wrote_it(cifar10):
    rows = cifar_rows(1)
    written = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
        b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
        + rows.tobytes()
        + b"tbU\x06labelsq\x07]q\x08K\x06au."
    )
    (cifar10 / "cifar-10-batches-py" / "test_batch").write_bytes(written)
    image, label = get_dataset("CIFAR10", root=str(cifar10))[0]
    assert label == 6 and np.array_equal(image, as_image(rows[0]))


def test_cifar10_of_real_images(data, tmp_path):
    with np.load(data / "cifar10_keras_cnn" / "cifar10_test2000.npz") as real:
        images, labels = real["x"][:50], real["y"][:50].reshape(-1)
    rows = images.transpose(0, 3, 1, 2).reshape(50, -1)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    packed = np.concatenate([labels.astype(np.uint8)[:, np.newaxis], rows], axis=1)
    (folder / "test_batch.bin").write_bytes(packed.tobytes())
    dataset = get_dataset("CIFAR10", root=str(tmp_path))
    assert np.array_equal(np.stack([image for image, _ in dataset]), images)
    assert np.array_equal([label for _, label in dataset], labels)


def test_cifar_reads_the_archive_without_unpacking(cifar10, tmp_path):
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(cifar10 / "cifar-10-batches-py", arcname="cifar-10-batches-py")
    shutil.rmtree(cifar10 / "cifar-10-batches-py")
    assert len(get_dataset("CIFAR10", root=str(tmp_path))) == 4
    assert not (tmp_path / "cifar-10-batches-py").exists()


def test_cifar_archive_with_escaping_paths_writes_nothing(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as packed:
        for name in ("../escaped", "/absolute", "cifar-10-batches-py/test_batch"):
            member = tarfile.TarInfo(name)
            member.size = 4
            if name.endswith("test_batch"):
                member.type, member.linkname, member.size = tarfile.SYMTYPE, "../../escaped", 0
            packed.addfile(member, io.BytesIO(b"evil"))
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz"):
        get_dataset("CIFAR10", root=str(root))
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["cifar-10-python.tar.gz", "root"]


def test_cifar100_both_versions(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "test").write_bytes(cifar_pickle([99, 0], b"fine_labels"))
    assert [label for _, label in get_dataset("CIFAR100", root=str(tmp_path))] == [99, 0]
    shutil.rmtree(folder)
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    rows = cifar_rows(2)
    (folder / "test.bin").write_bytes(b"".join(bytes([7, 42]) + row.tobytes() for row in rows))
    image, label = get_dataset("CIFAR100", root=str(tmp_path))[1]
    assert label == 42 and np.array_equal(image, as_image(rows[1]))


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("cifar_was_here",))


def test_cifar_forged_pickle_runs_nothing(cifar10, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = cifar10 / "cifar-10-batches-py" / "test_batch"
    target.write_bytes(pickle.dumps({b"data": Evil(), b"labels": [1]}, protocol=2))
    with pytest.raises(DataError, match=r"test_batch: .*mkdir, which is refused"):
        get_dataset("CIFAR10", root=str(cifar10))
    assert not (tmp_path / "cifar_was_here").exists()


FORGED = {
    "function": b"cos\nsystem\n(S'true'\ntR.",
    "builtin": b"cbuiltins\neval\n.",
    "persistent": b"Ppid\n.",
    "instance": b"(ios\nsystem\n.",
    "memory": b"\x80\x02Nr\xff\xff\xff\xff.",
    "stand-in changed": b"\x80\x02c_codecs\nencode\nN}X\x08\x00\x00\x00__call__Ns\x86b.",
    "class changed": b"\x80\x02cnumpy\nndarray\n}X\x05\x00\x00\x00arrayNsb.",
    "text": b"hello",
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_pickles_are_refused(name):
    with pytest.raises(DataError, match="batch: is not a pickle of plain values"):
        load_plain(FORGED[name], "batch")
    with contextlib.suppress(Exception):  # the second wall alone holds as well
        if name != "memory":
            RestrictedUnpickler(io.BytesIO(FORGED[name])).load()
    assert load_plain(cifar_pickle([1, 2]), "batch")[b"data"].shape == (2, 3072)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pickletools itself
def test_damaged_pickles_never_surprise():
    good = pickle.dumps({b"data": cifar_rows(1)[:, :8], b"labels": [1, 2, 3]}, protocol=2)
    draw = np.random.default_rng(0)
    for _ in range(3000):
        bad = bytearray(good)
        for place in draw.integers(0, len(bad), draw.integers(1, 4)):
            bad[place] = draw.integers(256)
        with contextlib.suppress(DataError):
            load_plain(bytes(bad), "batch")


@pytest.mark.parametrize("cut", [0, 1, 100, 5000])
def test_cifar_truncated(cifar10, cut):
    target = cifar10 / "cifar-10-batches-py" / "test_batch"
    target.write_bytes(target.read_bytes()[:cut])
    with pytest.raises(DataError, match="test_batch"):
        get_dataset("CIFAR10", root=str(cifar10))


def test_cifar_faults_name_the_file(cifar10):
    target = cifar10 / "cifar-10-batches-py" / "test_batch"
    target.write_bytes(cifar_pickle([1, 2, 10]))
    with pytest.raises(DataError, match=r"test_batch: sample 2 has the label 10; expected 0 to 9"):
        get_dataset("CIFAR10", root=str(cifar10))
    target.write_bytes(cifar_pickle([1, 2], rows=cifar_rows(3)))
    with pytest.raises(DataError, match="test_batch: 3 images but 2 labels"):
        get_dataset("CIFAR10", root=str(cifar10))
    target.write_bytes(cifar_pickle([1], rows=cifar_rows(1).astype(np.float32)))
    with pytest.raises(DataError, match="not of bytes"):
        get_dataset("CIFAR10", root=str(cifar10))
    target.unlink()
    with pytest.raises(DataError, match="test_batch: missing"):
        get_dataset("CIFAR10", root=str(cifar10))


def test_cifar_missing_says_where_from(tmp_path):
    with pytest.raises(DataError) as caught:
        get_dataset("CIFAR10", root=str(tmp_path), download=True)
    for part in (str(tmp_path), "cifar-10-batches-py", "cs.toronto.edu", "does not download"):
        assert part in str(caught.value)


def test_mnist_real(data):
    dataset = get_dataset("MNIST", root=str(data / "mnist"))
    assert len(dataset) == 10000
    assert [int(label) for _, label in (dataset[n] for n in range(5))] == [7, 2, 1, 0, 4]
    image, _ = dataset[0]
    assert image.shape == (28, 28, 1) and image.dtype == np.uint8 and image.max() > 200


def write_idx(path: Path, values: np.ndarray, packed: bool = True) -> None:
    head = bytes([0, 0, 8, values.ndim]) + np.asarray(values.shape, ">u4").tobytes()
    content = head + values.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize("place", ["", "FashionMNIST", "FashionMNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_fashion_mnist(tmp_path, picture, place, packed):
    images = picture(28, 28, 5).transpose(2, 0, 1)
    ending = ".gz" if packed else ""
    write_idx(tmp_path / place / f"train-images-idx3-ubyte{ending}", images, packed)
    write_idx(tmp_path / place / f"train-labels-idx1-ubyte{ending}", np.arange(5), packed)
    dataset = get_dataset("FashionMNIST", root=str(tmp_path), train=True)
    assert np.array_equal(dataset[3][0][:, :, 0], images[3]) and dataset[3][1] == 3


def test_mnist_npz_and_faults(tmp_path, picture):
    images = picture(28, 28, 4).transpose(2, 0, 1)
    np.savez(tmp_path / "mnist.npz", x_test=images, y_test=np.arange(4))
    assert len(get_dataset("MNIST", root=str(tmp_path))) == 4
    np.savez(tmp_path / "mnist.npz", x_test=images, y_test=np.asarray([{}], dtype=object))
    with pytest.raises(DataError, match=r"mnist\.npz"):
        get_dataset("MNIST", root=str(tmp_path))
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.arange(3))
    with pytest.raises(
        DataError, match=r"t10k-labels.*: images of shape \(4, 28, 28\) and labels of shape \(3,\)"
    ):
        get_dataset("MNIST", root=str(tmp_path))
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.asarray([0, 1, 12, 3]))
    with pytest.raises(DataError, match="sample 2 has the label 12"):
        get_dataset("MNIST", root=str(tmp_path))
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(DataError, match=r"t10k-images.*can't be unpacked"):
        get_dataset("MNIST", root=str(tmp_path))
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", np.arange(4))
    with pytest.raises(DataError, match="not an idx file of bytes with 3"):
        get_dataset("MNIST", root=str(tmp_path))


def test_mnist_missing(tmp_path):
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz.*does not download"):
        get_dataset("MNIST", root=str(tmp_path))
    with pytest.raises(DataError, match="no such folder"):
        get_dataset("MNIST", root=str(tmp_path / "nowhere"))


def test_imagenet_raw_real(data):
    folder = data / "imagenet-samples"
    dataset = get_dataset("ImagenetRaw", data_path=str(folder / "images"))
    listed = get_dataset("ImagenetRaw", str(folder / "images"), str(folder / "val_map.txt"))
    assert len(dataset) == len(listed) == 500
    image, label = dataset[1]
    assert label == 2
    assert np.array_equal(image, np.asarray(Image.open(dataset.origin(1)).convert("RGB")))


@pytest.fixture
def folder(tmp_path: Path, jpeg) -> Path:
    (tmp_path / "a.jpg").write_bytes(jpeg(20, 30))
    (tmp_path / "two words.png").write_bytes(jpeg(20, 30, format="PNG", mode="L"))
    (tmp_path / "val_map.txt").write_text("a.jpg 5\n\ntwo words.png 0\n")
    return tmp_path


def test_imagenet_raw_small(folder):
    dataset = get_dataset("ImagenetRaw", data_path=str(folder))
    assert [label for _, label in dataset] == [5, 0]
    assert dataset[1][0].shape == (20, 30, 3), "a grey image becomes RGB"
    deprecated = get_dataset("Imagenet", root=str(folder))
    assert len(deprecated) == 2 and np.array_equal(deprecated[0][0], dataset[0][0])


@pytest.mark.parametrize("line", ["a.jpg", "a.jpg x", "a.jpg -1", "a.jpg 1.5"])
def test_imagenet_raw_broken_line(folder, line):
    (folder / "val_map.txt").write_text(f"a.jpg 5\n{line}\n")
    with pytest.raises(DataError, match=r"val_map\.txt:2: expected 'name label'"):
        get_dataset("ImagenetRaw", data_path=str(folder))


def test_imagenet_raw_missing_image_and_empty_list(folder):
    (folder / "val_map.txt").write_text("a.jpg 5\nb.jpg 1\n")
    with pytest.raises(DataError, match=r"val_map\.txt:2: there is no image .*b\.jpg"):
        get_dataset("ImagenetRaw", data_path=str(folder))
    (folder / "val_map.txt").write_text("\n")
    with pytest.raises(DataError, match="the list is empty"):
        get_dataset("ImagenetRaw", data_path=str(folder))
    (folder / "val_map.txt").unlink()
    with pytest.raises(DataError, match="name label"):
        get_dataset("ImagenetRaw", data_path=str(folder))


def test_corrupt_image_is_named(folder, jpeg):
    for content in (b"", b"nonsense", jpeg(20, 30)[:200]):
        (folder / "a.jpg").write_bytes(content)
        dataset = get_dataset("ImagenetRaw", data_path=str(folder))
        with pytest.raises(DataError, match=r"a\.jpg: can't be decoded as an image"):
            dataset[0]


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK", "1"])
def test_odd_modes_become_rgb(tmp_path, picture, mode):
    suffix = "tif" if mode in ("CMYK", "LA") else "png"
    original = Image.fromarray(picture()).convert(mode)
    original.save(tmp_path / f"a.{suffix}")
    (tmp_path / "val_map.txt").write_text(f"a.{suffix} 0\n")
    image, _ = get_dataset("ImagenetRaw", data_path=str(tmp_path))[0]
    assert np.array_equal(image, np.asarray(original.convert("RGB")))


def test_sixteen_bit_mode_is_refused_by_name(tmp_path):
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(tmp_path / "a.png")
    (tmp_path / "val_map.txt").write_text("a.png 0\n")
    with pytest.raises(DataError, match=r"a\.png: the image mode 'I;16' can't become 'RGB'"):
        get_dataset("ImagenetRaw", data_path=str(tmp_path))[0]


def test_a_transform_that_fails_names_the_file(folder):
    from lpot.data import compose

    dataset = get_dataset(
        "ImagenetRaw", data_path=str(folder), transform=compose({"CenterCrop": 100})
    )
    with pytest.raises(DataError, match=r"a\.jpg: a crop of 100x100"):
        dataset[0]


def test_image_folder(tmp_path, jpeg):
    for name in ("zebra", "ant"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(jpeg(10, 10))
    (tmp_path / "zebra" / "notes.txt").write_text("not an image")
    (tmp_path / "zebra" / "0.PNG").write_bytes(jpeg(10, 12, format="PNG"))
    dataset = get_dataset("ImageFolder", root=str(tmp_path))
    assert dataset.classes == ["ant", "zebra"]
    assert [label for _, label in dataset] == [0, 1, 1]
    assert dataset[1][0].shape == (10, 12, 3)
    shutil.rmtree(tmp_path / "ant")
    shutil.rmtree(tmp_path / "zebra")
    with pytest.raises(DataError, match="ImageFolder: nothing found"):
        get_dataset("ImageFolder", root=str(tmp_path))
    (tmp_path / "ant").mkdir()
    with pytest.raises(DataError, match="hold no images"):
        get_dataset("ImageFolder", root=str(tmp_path))


def test_style_transfer(tmp_path, jpeg):
    for kind, count in (("content", 2), ("style", 3)):
        (tmp_path / kind).mkdir()
        for number in range(count):
            (tmp_path / kind / f"{number}.jpg").write_bytes(jpeg(40, 60))
    folders = dict(content_folder=str(tmp_path / "content"), style_folder=str(tmp_path / "style"))
    dataset = get_dataset("style_transfer", **folders, resize_shape=[16, 24])
    (content, style), label = dataset[5]
    assert len(dataset) == 6 and label == 0
    assert content.shape == style.shape == (16, 24, 3)
    assert content.dtype == np.float32 and content.min() >= 0 and content.max() <= 1
    assert not np.array_equal(content, style), "the style image is cropped"
    with pytest.raises(DataError, match=r"\*png"):
        get_dataset("style_transfer", **folders, image_format="png")


def test_dummy():
    dataset = get_dataset("dummy", shape=[5, 3, 4], low=0.0, high=2.0, label=True)
    image, label = dataset[4]
    assert len(dataset) == 5 and image.shape == (3, 4) and label == 0
    assert image.min() >= 0 and image.max() <= 2 and image.dtype == np.float32
    assert np.array_equal(dataset[4][0], image) and not np.array_equal(dataset[3][0], image)
    bare = get_dataset("dummy", shape=[(2, 3), (2, 1)], dtype=["int64", "bool"])
    first, second = bare[0]
    assert first.dtype == np.int64 and second.dtype == np.bool_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(shape=[[2, 3], [3, 3]]), "same number of samples"),
        (dict(shape="2, 3"), "positive whole numbers"),
        (dict(shape=[2, 0]), "positive whole numbers"),
        (dict(shape=[2, 3], low=3.0, high=1.0), "above high"),
        (dict(shape=[2, 3], low=[1.0, 2.0]), "2 entries, but there are 1"),
        (dict(shape=[2, 3], dtype="flot32"), "did you mean 'float32'"),
    ],
)
def test_dummy_faults(options, message):
    with pytest.raises(ConfigError, match=message):
        get_dataset("dummy", **options)


def test_dummy_v2_is_endless_and_repeats():
    dataset = get_dataset("dummy_v2", input_shape=[[4, 4], [2]], label_shape=[1])
    (first, second), label = next(iter(dataset))
    assert first.shape == (4, 4) and second.shape == (2,) and label.shape == (1,)
    assert np.array_equal(next(iter(dataset))[0][0], first)
    assert next(iter(get_dataset("dummy_v2", input_shape=[3]))).shape == (3,)


def test_names_and_options_are_checked():
    with pytest.raises(ConfigError, match="unknown dataset 'Mnist', did you mean 'MNIST'"):
        get_dataset("Mnist", root=".")
    with pytest.raises(ConfigError, match="no argument 'rot', did you mean 'root'"):
        get_dataset("MNIST", rot=".")
    with pytest.raises(ConfigError, match="dataset MNIST needs root"):
        get_dataset("MNIST")


def test_a_users_dataset_by_name():
    @dataset_registry(dataset_type="mine", framework="tensorflow, pytorch", dataset_format="")
    class Mine(Dataset):
        def count(self):
            return 3

        def read(self, number):
            return number, number

    try:
        assert get_dataset("mine")[2] == (2, 2)
        assert "mine" in DATASETS("pytorch") and "mine" not in DATASETS.builtin
        with pytest.raises(IndexError, match="has 3 samples"):
            get_dataset("mine")[3]
        assert get_dataset("mine")[-1] == (2, 2)
    finally:
        DATASETS.remove("mine")


def test_every_name_of_the_contract_is_there():
    names = (
        "CIFAR10 CIFAR100 MNIST FashionMNIST ImageFolder ImagenetRaw COCORaw COCONpy "
        "TFRecordDataset ImageRecord VOCRecord COCORecord bert GLUE style_transfer dummy dummy_v2 "
        "Imagenet"
    )
    assert set(names.split()) <= set(DATASETS)
