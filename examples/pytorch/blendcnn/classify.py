"""BlendCNN on MRPC: train (--model_config), tune (--tune), measure (--benchmark, --accuracy)."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from embeddings import fill, read_embeddings
from models import BlendCNN, Shape, load_weights, new_like
from torch import nn
from torch.nn.functional import cross_entropy
from train_config import TrainConfig

from lpot import LpotError
from lpot.data import DataLoader, get_dataset

HERE = Path(__file__).resolve().parent
LAST = Path("last_tuned.json")  # where the last tuning put its model
SHAPE = "blendcnn.json"
Batch = tuple[tuple[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Bert_DataLoader:
    """What lpot takes for calibration: batches of (inputs, labels), and their size."""

    def __init__(self, loader: Any, batch_size: int) -> None:
        self.loader, self.batch_size = loader, batch_size

    def __iter__(self) -> Iterator[Batch]:
        for inputs, labels in self.loader:
            names = ("input_ids", "token_type_ids", "attention_mask")
            yield tuple(torch.as_tensor(inputs[name]) for name in names), torch.as_tensor(labels)


def read_data(
    folder: Path, vocabulary: Path, batch_size: int, length: int, evaluate: bool = True
) -> DataLoader:
    """MRPC's dev.tsv or train.tsv in batches; dev_ids.tsv and test.tsv are not needed."""
    dataset = get_dataset(
        "GLUE", str(folder), str(vocabulary), max_seq_length=length, task="mrpc", evaluate=evaluate
    )
    return DataLoader(dataset, batch_size=batch_size, shuffle=not evaluate)


def place(name: str) -> Path:
    """A path of the json file: from here, else from the example's own folder."""
    given, own = Path(name), HERE / name
    return own if own.exists() and not given.exists() else given


def accuracy(model: nn.Module, loader: Any) -> float:
    """The share of right answers."""
    right = seen = 0
    for inputs, labels in loader:
        with torch.inference_mode():
            right += int((model(*inputs).argmax(1) == labels).sum())
        seen += len(labels)
    return right / seen


def train(config: TrainConfig) -> Path:
    """From the embeddings to model_final.pt; says after each epoch how far it is."""
    torch.manual_seed(config.seed)
    source = place(config.embeddings)
    net = new_net(config, source)
    data, size = place(config.data_dir), config.batch_size
    loader = read_data(data, source, size, config.max_len, evaluate=False)
    dev = Bert_DataLoader(read_data(data, source, size, config.max_len), size)
    learnt = [one for one in net.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=config.learning_rate)
    best, start = -1.0, time.monotonic()
    target = Path(config.model_file)
    target.parent.mkdir(parents=True, exist_ok=True)
    if (source / "vocab.txt").is_file():
        shutil.copyfile(source / "vocab.txt", target.parent / "vocab.txt")
    for epoch in range(config.epochs):
        loader.set_epoch(epoch)
        net.train()
        for inputs, labels in Bert_DataLoader(loader, size):
            loss = cross_entropy(net(*inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found = accuracy(net.eval(), dev)
        left = (time.monotonic() - start) / (epoch + 1) * (config.epochs - epoch - 1)
        print(f"epoch {epoch + 1} of {config.epochs}: dev {found:.4f}, {left:.0f} s left")
        if found > best:  # the best so far is on disk, whatever happens next
            best = found
            draft = target.with_suffix(".part")
            torch.save(net.state_dict(), draft)
            draft.replace(target)
    print(f"{target}: accuracy {best:.4f}")
    return target


def new_net(config: TrainConfig, source: Path) -> BlendCNN:
    """The net with BERT's embeddings in it, the rest still to be learnt."""
    tensors = read_embeddings(source)
    sizes = [len(tensors[f"{name}.weight"]) for name in ("word", "position", "token_type")]
    if config.max_len > sizes[1]:
        raise SystemExit(f"error: max_len {config.max_len}: {source} has {sizes[1]} positions")
    width = tensors["word.weight"].shape[1]
    shape = Shape(*sizes, width, config.channels, config.layers, config.kernel)
    net = BlendCNN(shape, config.dropout)
    fill(net.embed, tensors)
    return net


def find_weights(given: Path) -> Path:
    path = given / "model_final.pt" if given.is_dir() else given
    if not path.is_file():
        raise SystemExit(f"error: {path}: no such file; train it first with --model_config")
    return path


def tune(args: argparse.Namespace) -> None:
    """The tutorial's code, then the best model in --output_model."""
    weights = find_weights(args.input_model)
    model = load_weights(weights, args.manual_stubs)
    vocabulary = find_vocabulary(weights.parent)
    length = min(args.max_len, model.shape.positions)
    data_iter = read_data(args.dataset_location, vocabulary, args.batch_size, length)

    def eval_func(model: nn.Module) -> float:
        return accuracy(model, dataloader)

    from lpot.experimental import Quantization

    dataloader = Bert_DataLoader(loader=data_iter, batch_size=args.batch_size)
    quantizer = Quantization(args.lpot_yaml)
    quantizer.model = model
    quantizer.calib_dataloader = dataloader
    quantizer.eval_func = eval_func
    q_model = quantizer()
    q_model.save(args.output_model)
    shape = model.shape.to_json() | {"stubs": args.manual_stubs}
    (args.output_model / SHAPE).write_text(json.dumps(shape, indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(vocabulary, args.output_model / "vocab.txt")
    LAST.write_text(json.dumps({"int8": str(args.output_model.resolve())}) + "\n", "utf-8")
    result = quantizer.result
    print(f"FP32 {result.baseline.accuracy:.4f}, INT8 {result.accuracy:.4f}: {args.output_model}")


def find_vocabulary(folder: Path) -> Path:
    for path in (folder / "vocab.txt", *sorted(folder.glob("*/vocab.txt"))):
        if path.is_file():
            return path
    raise SystemExit(f"error: no vocab.txt in {folder} or in a folder of it")


def open_model(args: argparse.Namespace) -> tuple[nn.Module, Shape, Path]:
    """The model to measure, its sizes and vocabulary; --int8 alone takes the last one tuned."""
    if not args.int8:
        if args.input_model is None:
            raise SystemExit("error: --input_model is needed: the folder of model_final.pt")
        weights = find_weights(args.input_model)
        net = load_weights(weights)
        return net, net.shape, find_vocabulary(weights.parent)
    folder = args.input_model
    if folder is None:
        if not LAST.is_file():
            raise SystemExit("error: nothing was tuned here yet: run_tuning.sh, or --input_model=")
        folder = Path(json.loads(LAST.read_text("utf-8"))["int8"])
    if not (folder / SHAPE).is_file():
        raise SystemExit(f"error: {folder} is no INT8 model of run_tuning.sh (no {SHAPE} in it)")
    from lpot.utils.pytorch import load

    facts = json.loads((folder / SHAPE).read_text("utf-8"))
    stubs = facts.pop("stubs", False)  # models tuned before stubs were noted
    shape = Shape(**facts)
    return load(str(folder), new_like(shape, stubs)), shape, folder / "vocab.txt"


def measure(args: argparse.Namespace) -> None:
    """Accuracy on the dev set, or the time of a batch, in the words of the original."""
    model, shape, vocabulary = open_model(args)
    length = min(args.max_len, shape.positions)
    found = read_data(args.dataset_location, vocabulary, args.batch_size, length)
    loader = Bert_DataLoader(found, args.batch_size)
    if args.mode == "accuracy":
        print(f"Accuracy: {accuracy(model, loader):.4f}")
        return
    inputs, labels = next(iter(loader))
    seconds = median_seconds(lambda: model(*inputs), args.iter)
    size = len(labels)
    print(f"Batch size = {size}")
    print(f"Latency: {seconds / size * 1e3:.3f} ms")
    print(f"Throughput: {size / seconds:.1f} samples/sec")


def median_seconds(call: Callable[[], object], count: int, warmup: int = 5) -> float:
    times = []
    with torch.inference_mode():
        for _ in range(warmup + count):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return sorted(times[warmup:])[count // 2]


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} should be true or false")
    return text.lower() == "true"


def read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--model_config", type=Path, help="a json file: train as it says")
    add("--embeddings", help="folder of embeddings, instead of the json file's")
    add("--dataset_location", "--data_dir", type=Path, help="MRPC's folder")
    add("--model_file", help="where the trained weights go, instead of the json file's")
    add("--epochs", type=int, help="instead of the json file's")
    add("--lpot_yaml", default=str(HERE / "blendcnn.yaml"))
    add("--tune", action="store_true")
    add("--manual_stubs", action="store_true", help="the net with stubs and fusing by hand")
    add("--mode", choices=("benchmark", "performance", "accuracy"), help="measure a model")
    add("--int8", type=boolean, default=False)
    add("--input_model", type=Path, help="folder of model_final.pt, or an INT8 model's")
    add("--output_model", type=Path, default=Path("int8_model"))
    add("--batch_size", type=int, default=32)
    add("--max_len", type=int, default=128)
    add("--iter", type=int, default=50, help="timed runs")
    args = parser.parse_args(words)
    if not (args.model_config or args.tune or args.mode):
        parser.error("nothing to do: give --model_config, --tune or --mode")
    for name in ("batch_size", "max_len", "iter"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} should be 1 or more, not {getattr(args, name)}")
    if args.tune and args.input_model is None:
        parser.error("--tune needs --input_model, the folder of model_final.pt")
    return args


def main(words: Sequence[str] | None = None) -> None:
    args = read_arguments(words)
    if args.model_config:
        given = {"embeddings": args.embeddings, "model_file": args.model_file}
        given |= {"epochs": args.epochs}
        if args.dataset_location is not None:
            given["data_dir"] = str(args.dataset_location)
        train(TrainConfig.read(place(str(args.model_config)), given))
        return
    args.dataset_location = args.dataset_location or place("MRPC")
    (tune if args.tune else measure)(args)


if __name__ == "__main__":
    try:
        main()
    except LpotError as error:
        raise SystemExit(f"error: {error}") from error
