"""Tunings whose disk fills up at a random moment; test_full_disk.py starts it.

    full_disk_driver.py FRAMEWORK FOLDER SEED TIMES

From that moment no file grows beyond a random size. The run ends with a result or with an
LpotError, the best on disk can be loaded, no finished trial is lost, and once there is room again
the same call goes on to the recipe that an undisturbed run finds.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
from functools import partial
from pathlib import Path

from kill_driver import Campaign

from lpot.backends import get_backend
from lpot.core.errors import LpotError

SIZES = (0, 200, 1000, 3000, 10_000)


def fill(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def main(framework: str, root: Path, seed: int, times: int) -> list[int]:
    get_backend(framework)
    draw = random.Random(seed)
    campaign = Campaign(framework, "serial", root)
    calm = campaign.calm()
    known = []
    for number in range(times):
        folder = root / f"full{number}"
        size, at = draw.choice(SIZES), draw.randint(1, calm["changes"])
        campaign.allowed = (LpotError,)
        _, status = os.waitpid(campaign.child(folder, at=at, act=partial(fill, size)), 0)
        campaign.allowed = ()
        assert status == 0, f"{folder}: {size} bytes at change {at}: status {status}"
        known.append(campaign.check(folder, calm["result"]))
    return known


if __name__ == "__main__":
    word, place, number, count = sys.argv[1:]
    print(json.dumps(main(word, Path(place), int(number), int(count))))
