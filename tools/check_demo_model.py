"""What INT8 does to the demo's model: all ops, one op kept in float, repairs, dynamic ranges.

    python tools/check_demo_model.py

A plain Q/DQ graph is built for each case and run without graph optimisations, so that the figures
speak of the arithmetic alone and not of one CPU's kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from lpot.core.numerics.rounding import TensorStats, affine, quantize_weight
from lpot.demo import DemoData, demo_data, demo_model_path

ALGORITHMS = ("minmax", "percentile", "kl", "mse")
COMPUTE = ("Conv", "Gemm")
RELU_PAIRS = (
    ("conv1", "conv2"),
    ("conv2", "conv3"),
    ("conv3", "conv4"),
    ("conv4", "fc1"),
    ("mix", "fc2"),
)


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def accuracy(model: onnx.ModelProto, data: DemoData, batch: int = 797) -> float:
    run = session(model)
    parts = range(0, len(data.images), batch)
    logits = [run.run(None, {"image": data.images[at : at + batch]})[0] for at in parts]
    return float(np.mean(np.concatenate(logits).argmax(1) == data.labels))


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    return twin


def compute_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type in COMPUTE]


def observe(model: onnx.ModelProto, data: DemoData) -> dict[str, TensorStats]:
    """Statistics of each compute op's input over the calibration images."""
    names = [node.input[0] for node in compute_nodes(model)]
    wired = copied(model)
    known = {"image", "logits"}
    wired.graph.output.extend(
        helper.make_empty_tensor_value_info(n) for n in names if n not in known
    )
    seen = session(wired)
    outputs = [output.name for output in seen.get_outputs()]
    stats = {name: TensorStats.empty() for name in names}
    values = dict(zip(outputs, seen.run(None, {"image": data.calib_images}), strict=True))
    values["image"] = data.calib_images
    for name, each in stats.items():
        each.update(values[name])
    return stats


def quantized(
    model: onnx.ModelProto,
    stats: dict[str, TensorStats],
    algorithm: str,
    keep: Collection[str] = (),
    dynamic: Collection[str] = (),
    bits: int = 8,
) -> onnx.ModelProto:
    """u8 asymmetric activations, s8 symmetric weights per channel, float biases."""
    twin = copied(model)
    weights = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in twin.graph.node:
        if node.op_type in COMPUTE and node.name not in keep:
            source, weight, name = node.input[0], node.input[1], node.name
            node.input[0], node.input[1] = f"{name}.x", f"{name}.w"
            params = affine(*stats[source].range(algorithm))
            nodes += dynamic_pair(source, name) if name in dynamic else static_pair(source, name)
            q, scales = quantize_weight(weights[weight], axis=0, bits=bits)
            stored = {
                "x.scale": np.float32(params.scale),
                "x.zero": np.uint8(params.zero_point),
                "w.q": q,
                "w.scale": scales.scale,
            }
            twin.graph.initializer.extend(
                numpy_helper.from_array(np.asarray(value), f"{name}.{key}")
                for key, value in stored.items()
            )
            pair = [f"{name}.w.q", f"{name}.w.scale"]
            nodes.append(helper.make_node("DequantizeLinear", pair, [f"{name}.w"], axis=0))
        nodes.append(node)
    del twin.graph.node[:]
    twin.graph.node.extend(nodes)
    return twin


def static_pair(source: str, name: str) -> list[onnx.NodeProto]:
    params = [f"{name}.x.scale", f"{name}.x.zero"]
    return [
        helper.make_node("QuantizeLinear", [source, *params], [f"{name}.x.q"]),
        helper.make_node("DequantizeLinear", [f"{name}.x.q", *params], [f"{name}.x"]),
    ]


def dynamic_pair(source: str, name: str) -> list[onnx.NodeProto]:
    found = [f"{name}.d.q", f"{name}.d.scale", f"{name}.d.zero"]
    return [
        helper.make_node("DynamicQuantizeLinear", [source], found),
        helper.make_node("DequantizeLinear", found, [f"{name}.x"]),
    ]


def set_weights(model: onnx.ModelProto, values: dict[str, np.ndarray]) -> onnx.ModelProto:
    twin = copied(model)
    for each in twin.graph.initializer:
        if each.name in values:
            each.CopyFrom(numpy_helper.from_array(values[each.name].astype(np.float32), each.name))
    return twin


def equalized(model: onnx.ModelProto) -> onnx.ModelProto:
    """Cross-layer equalization of each pair of ops with a ReLU between, to convergence."""
    values = {w.name: numpy_helper.to_array(w).astype(np.float64) for w in model.graph.initializer}
    for _ in range(20):
        for first, second in RELU_PAIRS:
            head, tail = values[f"{first}.weight"], values[f"{second}.weight"]
            channels = len(head)
            blocks = tail.reshape(len(tail), channels, -1)
            out_range = np.abs(head).reshape(channels, -1).max(1)
            in_range = np.abs(blocks).max(axis=(0, 2))
            factor = np.sqrt(out_range / np.maximum(in_range, 1e-12))
            factor = np.where(factor > 0, factor, 1.0)
            values[f"{first}.weight"] = head / factor.reshape([-1] + [1] * (head.ndim - 1))
            values[f"{first}.bias"] = values[f"{first}.bias"] / factor
            values[f"{second}.weight"] = (blocks * factor[:, None]).reshape(tail.shape)
    return set_weights(model, values)


def smoothed(model: onnx.ModelProto, data: DemoData, alpha: float) -> onnx.ModelProto:
    """SmoothQuant on each compute op: divide input channels, multiply the weight's."""
    twin = copied(model)
    extra = [node.input[0] for node in compute_nodes(model) if node.input[0] != "image"]
    twin.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in extra)
    values = dict(zip(extra, session(twin).run(extra, {"image": data.calib_images}), strict=True))
    weights = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    result, nodes, changed = copied(model), [], {}
    for node in result.graph.node:
        if node.op_type in COMPUTE and node.input[0] != "image":
            source, name = node.input[0], node.name
            weight = weights[node.input[1]]
            axes = tuple(axis for axis in range(values[source].ndim) if axis != 1)
            peak = np.maximum(np.abs(values[source]).max(axis=axes), 1e-5)
            others = tuple(axis for axis in range(weight.ndim) if axis != 1)
            factor = peak**alpha / np.maximum(np.abs(weight).max(axis=others), 1e-5) ** (1 - alpha)
            shape = [1, -1] + [1] * (weight.ndim - 2)
            changed[node.input[1]] = weight * factor.reshape(shape)
            inverse = (1 / factor).reshape(shape).astype(np.float32)
            result.graph.initializer.append(numpy_helper.from_array(inverse, f"{name}.smooth"))
            node.input[0] = f"{name}.smoothed"
            nodes.append(helper.make_node("Mul", [source, f"{name}.smooth"], [f"{name}.smoothed"]))
        nodes.append(node)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return set_weights(result, changed)


def say(title: str, *scores: float) -> None:
    print(f"{title:36s}" + "".join(f"{score:12.4f}" for score in scores), flush=True)


def report(title: str, model: onnx.ModelProto, data: DemoData, keep: Collection[str] = ()) -> None:
    stats = observe(model, data)
    say(title, *(accuracy(quantized(model, stats, each, keep), data) for each in ALGORITHMS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=demo_model_path())
    model, data = onnx.load(parser.parse_args().model), demo_data()
    names = [node.name for node in compute_nodes(model)]
    say("FP32", accuracy(model, data))
    print(f"{'':36s}" + "".join(f"{each:>12s}" for each in ALGORITHMS))
    report("all INT8", model, data)
    for name in names:
        report(f"all INT8 but {name}", model, data, [name])
    even = equalized(model)
    say("equalized, FP32", accuracy(even, data))
    report("equalized, all INT8", even, data)
    report("equalized, all INT8 but mix", even, data, ["mix"])
    for alpha in (0.25, 0.5, 0.75):
        report(f"smoothed {alpha}, all INT8", smoothed(model, data, alpha), data)
    stats = observe(model, data)
    for batch in (1, 32, 797):
        built = quantized(model, stats, "minmax", dynamic=["mix"])
        say(f"all INT8, mix dynamic, batch {batch}", accuracy(built, data, batch))
    built = quantized(model, stats, "minmax", dynamic=names)
    say("all INT8, all dynamic, batch 32", accuracy(built, data, 32))
    say("all INT8, weights of 7 bits", accuracy(quantized(model, stats, "minmax", bits=7), data))
    built = quantized(model, stats, "minmax", ["mix"], bits=7)
    say("all INT8 but mix, weights of 7 bits", accuracy(built, data))


if __name__ == "__main__":
    main()
