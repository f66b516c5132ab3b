"""Decoders of transformers as ONNX graphs with a KV cache, written from their weights alone."""
