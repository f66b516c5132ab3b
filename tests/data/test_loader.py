"""The loader: batches, orders, threads, and other people's datasets and loaders."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import namedtuple

import numpy as np
import pytest

from lpot.core.errors import ConfigError, DataError
from lpot.data import DataLoader, build_loader, compose, get_dataset
from lpot.data.collate import collate
from lpot.data.draw import generator


class Numbers:
    def __init__(self, count: int = 7) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        if index >= self.count:
            raise IndexError(index)
        return np.full(2, index, np.float32), index


class Stream:
    def __init__(self, count: int = 7) -> None:
        self.count = count

    def __iter__(self):
        return iter([Numbers()[n] for n in range(self.count)])


class NoLength:
    def __getitem__(self, index: int):
        return Numbers(5)[index]


def labels(loader) -> list[list[int]]:
    return [batch[1].tolist() for batch in loader]


@pytest.mark.parametrize("dataset", [Numbers(), Stream(), [Numbers()[n] for n in range(7)]])
@pytest.mark.parametrize("workers", [0, 3])
def test_batches_and_last_batch(dataset, workers):
    loader = DataLoader(dataset, batch_size=3, num_workers=workers)
    assert labels(loader) == labels(loader) == [[0, 1, 2], [3, 4, 5], [6]]
    short = DataLoader(dataset, batch_size=3, last_batch="discard", num_workers=workers)
    assert labels(short) == [[0, 1, 2], [3, 4, 5]]
    assert labels(DataLoader(dataset, num_workers=workers)) == [[n] for n in range(7)]


def test_lengths():
    assert len(DataLoader(Numbers(), batch_size=3)) == 3
    assert len(DataLoader(Numbers(), batch_size=3, last_batch="discard")) == 2
    assert len(DataLoader(Numbers(), batch_size=2, sampler=[1, 2, 3, 4])) == 2
    assert len(DataLoader(Numbers(), batch_sampler=[[1], [2, 3]])) == 2
    with pytest.raises(TypeError):
        len(DataLoader(Stream()))


def test_dataset_without_length_ends_at_index_error():
    assert labels(DataLoader(NoLength(), batch_size=2)) == [[0, 1], [2, 3], [4]]
    assert labels(DataLoader(NoLength(), batch_size=2, last_batch="discard")) == [[0, 1], [2, 3]]


def test_shuffle_follows_the_seed():
    order = [n for batch in labels(DataLoader(Numbers(50), 4, shuffle=True, seed=3)) for n in batch]
    assert sorted(order) == list(range(50)) and order != list(range(50))
    loader = DataLoader(Numbers(50), 4, shuffle=True, seed=3, num_workers=2)
    assert [n for batch in labels(loader) for n in batch] == order
    assert labels(loader) == labels(loader), "each pass has the same order"
    loader.set_epoch(1)
    assert [n for batch in labels(loader) for n in batch] != order
    other = DataLoader(Numbers(50), 4, shuffle=True, seed=4)
    assert [n for batch in labels(other) for n in batch] != order


def test_samplers():
    assert labels(DataLoader(Numbers(), 2, sampler=[6, 0, 3])) == [[6, 0], [3]]
    assert labels(DataLoader(Numbers(), batch_sampler=[[1, 2], [0]])) == [[1, 2], [0]]
    with pytest.raises(DataError, match="asks for sample 9, but Numbers has 7"):
        labels(DataLoader(Numbers(), 2, sampler=[9]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(batch_size=0), "batch_size should be a whole number of 1 or more, not 0"),
        (dict(batch_size=True), "batch_size"),
        (dict(batch_size="8"), "batch_size"),
        (dict(num_workers=-1), "num_workers"),
        (dict(last_batch="rolover"), "did you mean 'rollover'"),
        (dict(sampler=[1], shuffle=True), "one of sampler"),
    ],
)
def test_loader_options(options, message):
    with pytest.raises(ConfigError, match=message):
        DataLoader(Numbers(), **options)


def test_loader_faults():
    with pytest.raises(ConfigError, match="Stream only gives its samples in sequence"):
        DataLoader(Stream(), shuffle=True)
    with pytest.raises(DataError, match="Numbers is empty"):
        DataLoader(Numbers(0))
    with pytest.raises(DataError, match="yielded no batch: it is empty"):
        list(DataLoader(Stream(0)))
    with pytest.raises(DataError, match="yielded no batch of 9 samples"):
        list(DataLoader(Numbers(), 9, last_batch="discard"))
    with pytest.raises(DataError, match="needs __getitem__ or __iter__; int has neither"):
        DataLoader(5)


def test_one_shot_dataset_is_refused_the_second_time():
    loader = DataLoader((Numbers()[n] for n in range(3)), batch_size=2)
    assert labels(loader) == [[0, 1], [2]]
    with pytest.raises(DataError, match="generator, which can be iterated only once"):
        list(loader)


def test_threads_read_ahead_and_stop_early():
    seen, main = [], threading.get_ident()

    class Watched(Numbers):
        def __getitem__(self, index):
            seen.append(threading.get_ident())
            return super().__getitem__(index)

    loader = DataLoader(Watched(1000), 2, num_workers=2)
    for number, _ in enumerate(loader):
        if number == 3:
            break
    assert main not in seen and len(seen) < 100


def test_an_error_in_a_thread_reaches_the_caller():
    class Broken(Numbers):
        def __getitem__(self, index):
            if index == 5:
                raise ValueError("sample five")
            return super().__getitem__(index)

    with pytest.raises(ValueError, match="sample five"):
        list(DataLoader(Broken(), 2, num_workers=2))


def test_random_transforms_do_not_depend_on_threads_or_order():
    class Random(Numbers):
        def __getitem__(self, index):
            return generator().random(3), index

    plain = dict(
        zip(range(20), np.concatenate([b[0] for b in DataLoader(Random(20), 4)]), strict=True)
    )
    for options in (dict(num_workers=3), dict(shuffle=True)):
        for values, numbers in DataLoader(Random(20), 4, **options):
            for value, number in zip(values, numbers, strict=True):
                assert np.array_equal(value, plain[int(number)])
    other = np.concatenate([b[0] for b in DataLoader(Random(20), 4, seed=5)])
    assert not np.array_equal(other[0], plain[0])


def test_a_users_collate_and_odd_samples():
    # The TensorFlow BERT tutorial: one sample, a file name and a batch size, its own collate.
    class Tutorial:
        def __getitem__(self, index):
            return ("eval.tf_record", 8), 0

        def __len__(self):
            return 1

    loader = DataLoader(Tutorial(), collate_fn=lambda batch: (batch[0][0], batch[0][1]))
    assert list(loader) == [(("eval.tf_record", 8), 0)]


def test_batches_are_the_same_by_either_way():
    class Odd(Numbers):
        """Samples that change their type or build on the way."""

        def __init__(self, change) -> None:
            super().__init__(6)
            self.change = change

        def __getitem__(self, index):
            return self.change(index)

    changes = (
        lambda n: (np.full(2, n, np.float64 if n == 3 else np.float32), n),
        lambda n: (np.full(2, n), "text", (np.zeros(n), n)),
        lambda n: ([n, n], n),
        lambda n: np.full(3, n),
        lambda n: {"a": np.full(3, n), "label": np.zeros(n)},
    )
    for change in changes:
        dataset = Odd(change)
        ours = list(DataLoader(dataset, 4))
        plain = list(DataLoader(dataset, 4, collate_fn=lambda samples: collate(samples)))
        assert repr(ours) == repr(plain)
    for change in (lambda n: (np.zeros(n), n), lambda n: (np.zeros(2),) * (n + 1)):
        with pytest.raises(DataError, match="Odd, samples 0 to 3: "):
            list(DataLoader(Odd(change), 4))


def test_a_collate_may_give_none():
    assert list(DataLoader(Numbers(3), 2, collate_fn=lambda samples: None)) == [None, None]


def test_collate_kinds():
    Pair = namedtuple("Pair", "image label")
    inputs, label = collate([Pair(np.zeros(2), 1), Pair(np.ones(2), 2)])
    assert inputs.shape == (2, 2) and label.tolist() == [1, 2]
    mixed = collate([({"ids": [1, 2], "name": "a"}, None), ({"ids": [3, 4], "name": "b"}, None)])
    assert mixed[0]["ids"].tolist() == [[1, 2], [3, 4]] and mixed[0]["name"] == ["a", "b"]
    assert mixed[1] == [None, None]
    assert collate([(np.zeros(2), np.ones(3))] * 2)[1].shape == (2, 3)
    nested = collate([((np.zeros(2), np.ones(3)), 4)] * 5)
    assert nested[0][0].shape == (5, 2) and nested[0][1].shape == (5, 3)
    assert collate([1.5, 2.5]).tolist() == [1.5, 2.5]
    assert collate(["a", "b"]) == ["a", "b"]
    assert collate([b"a", b"b"]) == [b"a", b"b"]
    assert collate([[np.zeros(2)], [np.ones(2)]])[0].shape == (2, 2), "[images] without labels"


def test_collate_of_framework_tensors():
    torch = pytest.importorskip("torch")
    inputs, label = collate([(torch.zeros(2), torch.tensor(1)), (torch.ones(2), torch.tensor(2))])
    assert isinstance(inputs, np.ndarray) and label.tolist() == [1, 2]


def test_ragged_labels_stay_lists_and_ragged_inputs_are_refused():
    boxes = [np.zeros((n, 4)) for n in (1, 3)]
    _, label = collate([(np.zeros(2), (box, np.asarray(b"x"))) for box in boxes])
    assert [b.shape for b in label[0]] == [(1, 4), (3, 4)] and label[1].shape == (2,)
    with pytest.raises(
        DataError, match=r"differ in shape, \(2,\) .*\(3,\) in its sample 1.*Resize"
    ):
        collate([(np.zeros(2), 0), (np.zeros(3), 0)])
    with pytest.raises(DataError, match="first sample of the batch has 2 parts, sample 1 has 3"):
        collate([(1, 2), (1, 2, 3)])
    with pytest.raises(DataError, match=r"keys \['a'\], sample 1 has \['b'\]"):
        collate([{"a": 1}, {"b": 1}])

    class Ragged(Numbers):
        def __getitem__(self, index):
            return np.zeros(index + 1), index

    with pytest.raises(DataError, match=r"Ragged, samples 0 to 1: .*differ in shape"):
        list(DataLoader(Ragged(), 2))


def test_torch_iterable_dataset_is_a_stream():
    torch = pytest.importorskip("torch")

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([(torch.zeros(2), n) for n in range(3)])

    assert labels(DataLoader(Rows(), 2)) == [[0, 1], [2]]


def test_import_stays_light():
    heavy = "PIL tokenizers transformers torch tensorflow onnx onnxruntime google_crc32c"
    code = f"import sys, lpot.data; print([m for m in {heavy.split()!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def section(**changes) -> dict:
    return {"batch_size": 2, "dataset": {"dummy": {"shape": [5, 8, 8, 3], "label": True}}} | changes


def test_build_loader(data):
    loader = build_loader(section(last_batch="discard", shuffle=True), seed=7)
    assert len(loader) == 2 and loader.seed == 7
    images = str(data / "imagenet-samples" / "images")
    loader = build_loader(
        {
            "batch_size": 4,
            "dataset": {"ImagenetRaw": {"data_path": images, "image_list": None}},
            "transform": {
                "Resize": {"size": 256, "keep_ratio": True},
                "CenterCrop": {"size": 224},
                "ToTensor": {},
                "Normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
            },
            "filter": None,
        }
    )
    images, found = next(iter(loader))
    assert images.shape == (4, 3, 224, 224) and images.dtype == np.float32
    assert found.tolist() == [0, 2, 4, 6] and 0.5 < images.std() < 2


def test_build_loader_with_filter(data):
    loader = build_loader(
        {
            "dataset": {"COCORaw": {"root": str(data / "coco2017-slice")}},
            "filter": {"LabelBalance": {"size": 3}},
            "transform": {"Resize": {"size": 32}},
        }
    )
    images, (boxes, *_) = next(iter(loader))
    assert images.shape == (1, 32, 32, 3) and boxes.shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batchsize": 2}, "dataloader: unknown key 'batchsize', did you mean 'batch_size'"),
        ({"dataset": {}}, "dataloader.dataset: expected exactly one dataset"),
        ({"dataset": None}, "dataloader.dataset: expected exactly one dataset"),
        ({"dataset": {"dumy": {}}}, "dataloader.dataset.dumy: unknown dataset"),
        ({"dataset": {"dummy": {"shap": [1]}}}, "did you mean 'shape'"),
        ({"transform": {"Resize": {"size": "big"}}}, "size should be a number"),
        (
            {"filter": {"LabelBalence": {"size": 2}}},
            "dataloader.filter.LabelBalence: unknown filter",
        ),
        ({"filter": {"LabelBalance": {"sizes": 2}}}, "no argument 'sizes'"),
    ],
)
def test_build_loader_faults(change, message):
    with pytest.raises(ConfigError, match=message):
        build_loader(section(**change))


def test_transforms_work_on_every_sample(data):
    dataset = get_dataset("MNIST", root=str(data / "mnist"), transform=compose({"ToTensor": {}}))
    images, _ = next(iter(DataLoader(dataset, 16)))
    assert images.shape == (16, 1, 28, 28) and images.max() <= 1


def test_a_batch_of_one_never_lies_in_the_dataset(tmp_path):
    """What a model does to its input in place must not reach the data."""
    images = np.arange(2 * 3072, dtype=np.int64).astype(np.uint8).reshape(2, -1)
    rows = np.concatenate([np.asarray([[1], [2]], np.uint8), images], axis=1)
    (tmp_path / "cifar-10-batches-bin").mkdir()
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(rows.tobytes())
    for steps in (None, {"Rescale": {}}, {"ToArray": {}}, {"Transpose": {"perm": [2, 0, 1]}}):
        section = {"dataset": {"CIFAR10": {"root": str(tmp_path)}}, "transform": steps}
        loader = build_loader(section)
        before = [batch.copy() for batch, _ in loader]
        for batch, _ in loader:
            assert batch.shape[0] == 1
            batch[...] = 0
        assert all(np.array_equal(a, b) for a, (b, _) in zip(before, loader, strict=True))
    own = [(np.ones(3, np.float32), 0)]
    for batch, _ in DataLoader(own):
        batch[...] = 0
    assert own[0][0].tolist() == [1, 1, 1]
