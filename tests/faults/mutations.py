"""Files spoilt in every way that disks, editors and strangers have."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**30,
    1e308,
    -0.0,
    "",
    "x",
    "../../up",
    "\udcff",
    [],
    {},
    [[]],
    {"a": {}},
    "9" * 5000,
)
CHARS = b'\x00\xff{}[]",:0x-9e\n <'


def flipped(raw: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(raw)
    for _ in range(draw.choice((1, 1, 1, 3, 20))):
        spoilt[draw.randrange(len(spoilt))] ^= 1 << draw.randrange(8)
    return bytes(spoilt)


def cut(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.randrange(len(raw))]


def swapped(raw: bytes, draw: random.Random) -> bytes:
    spoilt = bytearray(raw)
    for _ in range(draw.choice((1, 4))):
        spoilt[draw.randrange(len(spoilt))] = draw.choice(CHARS)
    return bytes(spoilt)


def spliced(raw: bytes, draw: random.Random) -> bytes:
    """A piece is doubled, lost, or moved."""
    a, b, c = sorted(draw.randrange(len(raw) + 1) for _ in range(3))
    return draw.choice((raw[:b] + raw[a:], raw[:a] + raw[c:], raw[:a] + raw[b:c] + raw[a:b]))


def rewritten(raw: bytes, draw: random.Random) -> bytes:
    """A value of a JSON file replaced by another, or a key taken away."""
    try:
        value = json.loads(raw)
    except ValueError:
        return flipped(raw, draw)
    places = list(_places(value))
    if not places:
        return json.dumps(draw.choice(ODD)).encode()
    inner, key = draw.choice(places)
    if draw.random() < 0.25:
        del inner[key]
    else:
        inner[key] = draw.choice(ODD)
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container inside with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys if isinstance(value, dict | list) else ():
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


BYTES = (flipped, cut, swapped, spliced)


def mutated(raw: bytes, draw: random.Random, is_json: bool) -> bytes:
    if is_json and draw.random() < 0.6:
        return rewritten(raw, draw)
    return draw.choice(BYTES)(raw, draw)
