"""Decoders with weights in few bits as torch modules: kernels by measurement."""
