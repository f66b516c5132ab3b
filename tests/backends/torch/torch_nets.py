"""Small torch models with a bit of everything, for the tests of the torch backend."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

# Tests run side by side with others: two threads waiting for one core cost more than they gain.
torch.set_num_threads(1)


def seeded(module: nn.Module) -> nn.Module:
    """Weights and batch norms as a trained net might have them, the same every time."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.running_mean.normal_(0, 0.3, generator=generator)
                part.running_var.uniform_(0.5, 2.0, generator=generator)
                part.weight.uniform_(0.5, 1.5, generator=generator)
                part.bias.normal_(0, 0.2, generator=generator)
        for name, tensor in module.named_parameters():
            if tensor.dim() > 1:
                fan = tensor[0].numel()
                tensor.normal_(0, fan**-0.5, generator=generator)
            elif "bias" in name:
                tensor.normal_(0, 0.1, generator=generator)
    return module


class Block(nn.Module):
    """Residual, with one relu for both places."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor, scale: float | None = None) -> torch.Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if scale is not None:
            y = y * scale
        y += x
        return self.relu(y)


class Cnn(nn.Module):
    """Stem, residual block, depthwise, relu6, branches joined, pooled, classified."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.block = Block(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.act = nn.ReLU6()
        self.left = nn.Conv2d(16, 8, 1)
        self.right = nn.Conv2d(16, 24, 3, padding=1)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block(self.pool(self.stem(x)))
        x = self.act(self.depthwise(x))
        x = torch.cat([functional.relu(self.left(x)), self.right(x).relu()], 1)
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


class Branching(nn.Module):
    """Which layer runs depends on the data: torch.fx can't read it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
        self.even = nn.Linear(24, 4)
        self.odd = nn.Linear(24, 4)
        self.never = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if float(x.sum()) > 1e9:
            return self.never(x)
        return self.even(x) if x.mean() > 0.3 else self.odd(x)


class Recurrent(nn.Module):
    """Embedding, LSTM both ways, GRU, a bag of words, and a linear on top."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12, padding_idx=0)
        self.bag = nn.EmbeddingBag(50, 6, mode="sum")
        self.lstm = nn.LSTM(12, 10, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(20, 8, batch_first=True, bias=False)
        self.fc = nn.Linear(14, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.words(ids))
        _, last = self.gru(x)
        return self.fc(torch.cat([last[0], self.bag(ids)], 1))


class Shapes(nn.Module):
    """Every convolution there is, with paddings of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv1d(4, 8, 3, padding="same")
        self.up1 = nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1)
        self.two = nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect")
        self.even = nn.Conv2d(8, 8, 2, padding="same")
        self.up2 = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.three = nn.Conv3d(4, 6, 3, padding=1, dilation=1, groups=2)
        self.up3 = nn.ConvTranspose3d(6, 4, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up1(functional.relu(self.one(x)))
        x = self.even(self.two(x.unsqueeze(2).repeat(1, 1, 4, 1)))
        x = self.norm(self.up2(x))
        return self.up3(self.three(x.unsqueeze(2).repeat(1, 1, 2, 1, 1))).mean((2, 3))


class Encoder(nn.Module):
    """torch's own transformer, which bypasses its modules when it can."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.fc = nn.Linear(16, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.encoder(self.words(ids), src_key_padding_mask=ids == 0)
        return self.fc(x.mean(1))


def stubbed() -> nn.Module:
    """A model prepared by hand, as the original's tutorials ask for."""
    from torch.ao.nn.quantized import FloatFunctional
    from torch.ao.quantization import DeQuantStub, QuantStub, fuse_modules

    class Stubbed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = QuantStub(), DeQuantStub()
            self.conv = nn.Conv2d(3, 8, 3)
            self.norm = nn.BatchNorm2d(8)
            self.relu = nn.ReLU()
            self.other = nn.Conv2d(3, 8, 3)
            self.sum = FloatFunctional()
            self.fc = nn.Linear(8, 4)
            self.fc_relu = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.quant(x)
            x = self.sum.add(self.relu(self.norm(self.conv(x))), self.other(x))
            return self.dequant(self.fc_relu(self.fc(x.mean((2, 3)))))

    module = seeded(Stubbed()).eval()
    return fuse_modules(module, [["conv", "norm", "relu"], ["fc", "fc_relu"]])


def images(count: int = 3, size: int = 32) -> list[tuple[torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(4, 3, size, size, generator=generator),) for _ in range(count)]


def ids(count: int = 3, words: int = 40) -> list[tuple[torch.Tensor]]:
    generator = torch.Generator().manual_seed(2)
    return [(torch.randint(1, words, (4, 9), generator=generator),) for _ in range(count)]


def transformers_model(name: str) -> tuple[nn.Module, list[dict[str, torch.Tensor]]]:
    """A tiny model of the transformers library with random weights, and batches for it."""
    import transformers

    generator = torch.Generator().manual_seed(3)
    tokens = [torch.randint(1, 60, (2, 7), generator=generator) for _ in range(2)]
    texts: list[dict[str, torch.Tensor]] = [{"input_ids": batch} for batch in tokens]
    small: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    made: dict[str, Any] = {
        "bert": lambda: transformers.BertForSequenceClassification(
            transformers.BertConfig(vocab_size=64, intermediate_size=32, **small)
        ),
        "distilbert": lambda: transformers.DistilBertModel(
            transformers.DistilBertConfig(
                vocab_size=64, dim=16, hidden_dim=32, n_layers=2, n_heads=2
            )
        ),
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2)
        ),
        "vit": lambda: transformers.ViTForImageClassification(
            transformers.ViTConfig(image_size=16, patch_size=8, intermediate_size=32, **small)
        ),
        "t5": lambda: transformers.T5Model(
            transformers.T5Config(
                vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2
            )
        ),
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(vocab_size=64, intermediate_size=32, **small)
        ),
    }
    with torch.random.fork_rng():
        torch.manual_seed(5)
        module = seeded(made[name]()).eval()
    if name == "vit":
        texts = [{"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)} for _ in range(2)]
    if name == "t5":
        texts = [{"input_ids": batch, "decoder_input_ids": batch} for batch in tokens]
    return module, texts
