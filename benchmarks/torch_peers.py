"""Contestants of the PyTorch benchmark; each is made in the process that times it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_nets import TORCH_NETS, TorchNet, tensors

from lpot.backends import get_backend
from lpot.core.batch import InputSpec
from lpot.core.space import restrict

Made = tuple[Callable[[Mapping[str, np.ndarray]], object], list[InputSpec]]
SAMPLES = 4
TORCHAO = "LPOT_TORCHAO"  # the folder that holds torchao, which needs no environment of its own


def _made(net: TorchNet, module: nn.Module) -> Made:
    torch.set_num_threads(int(os.environ["LPOT_THREADS"]))
    specs = [InputSpec(name, dtype, shape) for name, (shape, dtype) in net.inputs.items()]

    def call(feed: Mapping[str, np.ndarray]) -> object:
        with torch.inference_mode():
            return module(*tensors(dict(feed)))

    return call, specs


def fp32(name: str) -> Made:
    net = TORCH_NETS[name]
    return _made(net, net.module())


def ours(name: str, approach: Any) -> Made:
    """What `lpot` makes of it: everything the backend wants in INT8, the module as it is."""
    torch.set_num_threads(int(os.environ["LPOT_THREADS"]))
    net = TORCH_NETS[name]
    backend: Any = get_backend("pytorch")
    model = backend.load(net.module())
    recipe = restrict(backend.inspect(model, approach), ()).default()
    batches = [tensors(feed) for feed in net.feeds(SAMPLES)]
    observations = backend.observe(model, batches, (0,))[0]
    built = backend.build(model, recipe, observations)
    backend.run(built, batches[0])
    return _made(net, built.native)


def legacy_fx(name: str, engine: str) -> Made:
    """torch's graph mode; what it can't trace fails, and the table says so."""
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    warnings.simplefilter("ignore")
    torch.backends.quantized.engine = engine
    net = TORCH_NETS[name]
    batches = [tensors(feed) for feed in net.feeds(SAMPLES)]
    mapping = get_default_qconfig_mapping(engine).set_object_type(nn.Embedding, None)
    prepared = prepare_fx(net.module(), mapping, batches[0])
    with torch.no_grad():
        for batch in batches:
            prepared(*batch)
    return _made(net, convert_fx(prepared))


def legacy_dynamic(name: str, engine: str) -> Made:
    from torch.ao.quantization import quantize_dynamic

    warnings.simplefilter("ignore")
    torch.backends.quantized.engine = engine
    net = TORCH_NETS[name]
    return _made(net, quantize_dynamic(net.module(), {nn.Linear}))


def torchao_compiled(name: str) -> Made:
    """torchao's PT2E quantization, then torch.compile: its first call takes a minute or more."""
    sys.path.append(os.environ[TORCHAO])
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    warnings.simplefilter("ignore")
    os.environ.setdefault("TORCHINDUCTOR_FREEZING", "1")
    net = TORCH_NETS[name]
    batches = [tensors(feed) for feed in net.feeds(SAMPLES)]
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    exported = torch.export.export(net.module(), batches[0]).module()
    prepared = prepare_pt2e(exported, quantizer)
    with torch.no_grad():
        for batch in batches:
            prepared(*batch)
        compiled = torch.compile(convert_pt2e(prepared))
        compiled(*batches[0])
    return _made(net, compiled)
