"""The report of a running tuning on a local address: read-only, and behind a token."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lpot.core.errors import ConfigError, HistoryError, LpotError
from lpot.core.results.report import Report
from lpot.jobs.report.beacon import read_now
from lpot.jobs.report.read import read_report, stamp
from lpot.jobs.report.runs import Run, Runs, is_run
from lpot.report.html import document, page
from lpot.report.markup import render
from lpot.report.runs import runs_page

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
LONGEST_PATH = 512
PLAIN, HTML, JSON = "text/plain", "text/html", "application/json"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
Answer = tuple[HTTPStatus, str, str]
NOT_FOUND: Answer = (HTTPStatus.NOT_FOUND, PLAIN, "not found\n")


class Dashboard:
    """What is shown of a workspace, or of all below a folder. It takes no lock, writes nothing."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace.absolute()
        self._guard = threading.Lock()
        self._known: tuple[tuple[int, ...], Report | str] | None = None
        self._runs = Runs(self.workspace)
        self._below: dict[str, Dashboard] = {}  # by key

    def report(self) -> Report | str:
        """The report as it stands, or why there is none; read anew only when files changed."""
        now = stamp(self.workspace)
        with self._guard:
            if self._known is None or self._known[0] != now:
                self._known = (now, self._read())
            return self._known[1]

    def _read(self) -> Report | str:
        try:
            return read_report(self.workspace)
        except (LpotError, OSError) as error:
            there = self.workspace.is_dir()
            waiting = "the folder is empty so far" if there else "the folder does not exist yet"
            empty = isinstance(error, HistoryError) and not is_run(self.workspace)
            return f"{self.workspace}: {waiting}" if empty else str(error)

    def answer(self, name: str, back: str = "") -> Answer:
        """A few things can be asked for; no name ever becomes a path."""
        key, slash, rest = name.partition("/")
        if slash:
            found = self._run(key)
            return found.answer(rest, back=found.workspace.name) if found is not None else NOT_FOUND
        runs = [] if is_run(self.workspace) else self._all()
        if runs:
            return self._folder(name, runs)
        if name == "stamp":
            return HTTPStatus.OK, PLAIN, "-".join(map(str, stamp(self.workspace)))
        if name == "now":
            return HTTPStatus.OK, PLAIN, self._now()
        return self._single(name, back)

    def _single(self, name: str, back: str) -> Answer:
        found = self.report()
        if name == "report.json":
            raw: Any = {"waiting": found} if isinstance(found, str) else found.to_json()
            return HTTPStatus.OK, JSON, json.dumps(raw)
        if name != "":
            return NOT_FOUND
        if isinstance(found, str):
            return HTTPStatus.OK, HTML, _waiting(found)
        return HTTPStatus.OK, HTML, page(found, live=True, now=self._now(), back=back)

    def _now(self) -> str:
        found = self.report()
        running = not isinstance(found, str) and found.state == "running"
        moment = read_now(self.workspace) if running else None
        return "" if moment is None else moment.sentence()

    def _all(self) -> list[Run]:
        with self._guard:
            return self._runs.all()

    def _folder(self, name: str, runs: list[Run]) -> Answer:
        if name == "stamp":
            return HTTPStatus.OK, PLAIN, self._runs.stamp()
        if name == "now":
            going = sum(not isinstance(r.found, str) and r.found.state == "running" for r in runs)
            return HTTPStatus.OK, PLAIN, f"{going} running now" if going else ""
        if name != "":
            return NOT_FOUND
        entries = [(run.name, f"{run.key}/", run.found) for run in runs]
        return HTTPStatus.OK, HTML, runs_page(str(self.workspace.name), entries, live=True)

    def _run(self, key: str) -> Dashboard | None:
        """The view of one run below the folder, by its key."""
        if key not in self._below and not is_run(self.workspace):
            for run in self._all():
                self._below.setdefault(run.key, Dashboard(run.path))
        return self._below.get(key)


def _waiting(text: str) -> str:
    body = render("page.waiting.html", text=text)
    return document("waiting for a tuning", body, live=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "lpot"
    sys_version = ""
    timeout = 30  # seconds that a silent visitor may hold a thread

    def do_GET(self) -> None:
        self._send(*self._answer())

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, PLAIN, "this view is read-only\n")

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def _answer(self) -> Answer:
        refused = (HTTPStatus.FORBIDDEN, PLAIN, "wrong or missing token\n")
        # Another name for this address would let a foreign page read it (DNS rebinding).
        if self.headers.get("Host") not in self.server.hosts:
            return refused
        path = self.path.partition("?")[0]
        token, slash, name = path.removeprefix("/").partition("/")
        right = hmac.compare_digest(token.encode(), self.server.token.encode())
        if not right or not slash or len(path) > LONGEST_PATH:
            return refused
        return self.server.dashboard.answer(name)

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        # Without the path: the token is in it.
        logger.debug("dashboard: a request was answered")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, dashboard: Dashboard, port: int) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.dashboard = dashboard
        self.token = secrets.token_urlsafe(24)
        number = self.server_address[1]
        self.hosts = {f"{name}:{number}" for name in (LOOPBACK, "localhost")}

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that goes away in the middle of an answer is no event.
        logger.debug("dashboard: a client disconnected", exc_info=True)


def serve(workspace: str | Path, port: int = 0) -> _Server:
    """A server for a workspace or a folder of them: `serve_forever`, then `server_close`."""
    try:
        return _Server(Dashboard(Path(workspace)), port)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"port {port} is not available ({error}): choose another, or none for a free one",
            "--port",
        ) from error
