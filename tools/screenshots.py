"""The pictures of the docs: reports and dashboard of real tunings, in a real browser.

    python tools/screenshots.py        needs chromium; takes a minute or two

Two tunings of the demo's net are made in a folder of its own: one that is over, and one that is
under way while the dashboard is looked at.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

import onnxruntime  # noqa: E402

import lpot  # noqa: E402
from browser import Browser, chromium  # noqa: E402
from lpot.demo import demo_data, demo_model_path  # noqa: E402
from lpot.jobs.report.dashboard import serve  # noqa: E402

IMAGES = ROOT / "docs" / "images"
LARGEST = 300_000  # bytes of one picture
DESKTOP, PHONE = (1200, 900), (375, 780)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        runs = Path(folder) / "lpot_workspace"
        tuned(runs / "digits", goal=0.01, timeout=20)
        tuned(runs / "digits-strict", goal=0.0005, max_trials=4)
        tuned(runs / "digits-loose", goal=0.2)
        report = (runs / "digits" / "report.html").as_uri()
        shot(browser, report, "report", DESKTOP)
        shot(browser, report, "report-dark", DESKTOP, "dark")
        shot(browser, report, "report-phone", PHONE)
        shot(browser, report, "report-ops", DESKTOP, at="#every")
        shot(browser, report, "report-search", DESKTOP, at="#search")
        both = Path(folder) / "both.html"
        both.write_text(compared(runs / "digits", runs / "digits-strict"), "utf-8")
        shot(browser, both.as_uri(), "report-compare", DESKTOP)
        watched(browser, runs)


def score(pause: float = 0.0) -> Any:
    """The demo's accuracy, batch by batch; with a pause, slow enough to be watched."""
    data = demo_data()

    def accuracy(model: Any) -> Any:
        session = onnxruntime.InferenceSession(model.SerializeToString())
        for start in range(0, len(data.labels), 50):
            part = slice(start, start + 50)
            (logits,) = session.run(None, {"image": data.images[part]})
            time.sleep(pause)
            yield logits.argmax(1) == data.labels[part]

    return accuracy


def tuned(workspace: Path, pause: float = 0.0, **settings: Any) -> None:
    calib = [demo_data().calib_images[i : i + 50] for i in range(0, 500, 50)]
    model = demo_model_path()
    lpot.tune(model, calib, score(pause), workspace=workspace, progress=False, **settings)


def compared(first: Path, second: Path) -> str:
    from lpot.jobs.report.read import read_report
    from lpot.report.versus import versus, versus_page

    return versus_page(versus(read_report(first), read_report(second)), (first.name, second.name))


def watched(browser: Browser, runs: Path) -> None:
    """The list of runs, and one of them while it is made."""
    under_way = {"pause": 0.4, "goal": 0.001, "timeout": 60, "max_trials": 6}
    making = threading.Thread(target=tuned, args=(runs / "digits-new",), kwargs=under_way)
    server = serve(runs)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    making.start()
    browser.look(*DESKTOP)
    browser.open(server.url)
    browser.wait("document.body.textContent.includes('digits-new')")
    row = "[...document.querySelectorAll('a')].find(a => a.textContent === 'digits-new').href"
    address = str(browser.ask(row))
    shot(browser, server.url, "runs", DESKTOP)
    browser.open(address)
    browser.wait("/trial [3-9]/.test(document.getElementById('now').textContent)")
    shot(browser, address, "dashboard", DESKTOP, wait="document.getElementById('now').textContent")
    shot(browser, address, "dashboard-dark", DESKTOP, "dark")
    shot(browser, address, "dashboard-phone", PHONE)
    making.join()
    server.shutdown()


def shot(
    browser: Browser,
    address: str,
    name: str,
    size: tuple[int, int],
    scheme: str = "light",
    at: str = "",
    wait: str = "",
) -> None:
    browser.look(*size, scheme, phone=size == PHONE)
    browser.open(address)
    if wait:
        browser.wait(wait)
    if at:
        browser.ask(f"document.querySelector('{at}').scrollIntoView()")
    made = browser.shoot(IMAGES / f"{name}.png")
    assert made.stat().st_size < LARGEST, f"{made} has {made.stat().st_size} bytes"
    assert browser.complaints == [], browser.complaints
    print(made.relative_to(ROOT), made.stat().st_size)


if __name__ == "__main__":
    main()
