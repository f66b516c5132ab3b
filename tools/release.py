"""The checklist of a release, run rather than read.

    python tools/release.py --quick      what takes seconds
    python tools/release.py              all of it: about two hours

Nothing is published: when all is well, the commands that do so are printed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]
HEADING = re.compile(r"^## \[(.+?)\] - (\d{4}-\d{2}-\d{2})$", re.M)


def run(*words: str) -> str:
    """Its output; empty when it succeeds without a word."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:] or "failed"


def nothing_uncommitted() -> str:
    done = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout or done.stderr


def version_and_changelog_agree() -> str:
    from lpot.version import VERSION

    found = HEADING.search((ROOT / "CHANGELOG.md").read_text("utf-8"))
    if found is None:
        return "CHANGELOG.md has no heading like '## [1.2.3] - 2030-12-31'"
    if found[1] != VERSION:
        return f"CHANGELOG.md begins with {found[1]}, src/lpot/version.py says {VERSION}"
    tags = subprocess.run(["git", "tag"], cwd=ROOT, capture_output=True, text=True).stdout
    return f"the tag v{VERSION} exists already" if f"v{VERSION}" in tags.split() else ""


def public_names_are_recorded() -> str:
    from public_names import LIST, public_names

    recorded, now = set(LIST.read_text("utf-8").splitlines()), set(public_names())
    if recorded == now:
        return ""
    gone, new = sorted(recorded - now), sorted(now - recorded)
    return f"gone: {gone}; new: {new} (python tools/public_names.py --write)"


def generated_pages_are_current() -> str:
    return run("make", "docs") or nothing_uncommitted()


QUICK: dict[str, Callable[[], str]] = {
    "nothing is uncommitted": nothing_uncommitted,
    "version and changelog agree": version_and_changelog_agree,
    "public names are recorded": public_names_are_recorded,
    "generated pages are current": generated_pages_are_current,
    "lint": lambda: run("make", "lint"),
}
LONG: dict[str, Callable[[], str]] = {
    "all tests, on this CPU and on an emulated one": lambda: run("make", "test-all"),
    "the tests reach enough": lambda: run("make", "coverage"),
    "the oldest and the newest versions": lambda: run("make", "test-versions"),
    "the examples": lambda: run("make", "examples"),
    "wheel and source archive": lambda: run("make", "dist"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    steps = QUICK if parser.parse_args().quick else QUICK | LONG
    failed = False
    for name, step in steps.items():
        trouble = step().strip()
        failed = failed or bool(trouble)
        print(f"{'NO ' if trouble else 'yes'}  {name}", flush=True)
        if trouble:
            print(f"     {trouble}", flush=True)
    if not failed and steps is not QUICK:
        from lpot.version import VERSION

        print(f"\ngit tag -a v{VERSION} -m {VERSION} && git push --tags\ntwine upload dist/*")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
