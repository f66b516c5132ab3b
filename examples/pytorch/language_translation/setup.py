"""`python setup.py install`, as the tutorial types it: there is no fork of transformers to build.

The scripts run on the public transformers package; `pip install -r requirements.txt` brings it.
Any command succeeds here and says what is still missing.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = {
    "torch": "torch>=2.6",
    "transformers": "transformers>=4.44",
    "safetensors": "safetensors>=0.4",
    "lpot": '-e "../../..[pytorch,data]"',
}


def main() -> None:
    missing = [package for name, package in NEEDED.items() if find_spec(name) is None]
    print("nothing to build: the scripts run on the public transformers package")
    if missing:
        print(f"still missing: pip install {' '.join(missing)}", file=sys.stderr)


if __name__ == "__main__":
    main()
