"""Chromium without a window, driven over two pipes (DevTools protocol): no port, no network, no driver package."""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

import pytest

# A machine with eight other tests on it; nothing waits so long on a quiet one.
ANSWERS_WITHIN_S = 60.0
_COMMAND = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Tab:
    """One page. `problems` are its console errors and exceptions, `requests` the addresses it asked for."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser, self._session = browser, session
        self._loaded = False
        self.problems: list[str] = []
        self.requests: list[str] = []

    def hear(self, method: str, told: dict) -> None:
        """An event of this page."""
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"]))
        elif (method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert")) or (
            method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning")
        ):
            self.problems.append(str(told))

    def go(self, url: str) -> None:
        """Opens an address and waits until it is loaded."""
        self._loaded = False
        answer = self.ask("Page.navigate", url=url)
        assert not answer.get("errorText"), answer
        self._browser.listen_until(lambda: self._loaded)

    def run(self, expression: str):
        """The value of a piece of JavaScript."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Waits until it is true."""
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        while not self.run(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.1)

    def screenshot(self) -> bytes:
        """The whole page as a PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self) -> bytes:
        """As it is printed."""
        printed = self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=False)
        return base64.b64decode(printed["data"])

    def ask(self, method: str, **params) -> dict:
        """One command of the protocol."""
        return self._browser.ask(method, self._session, **params)


class Browser:
    """A running Chromium with an empty profile."""

    def __init__(self, process: subprocess.Popen, to: int, answers: int) -> None:
        self._process, self._to, self._answers = process, to, answers
        self._left = b""
        self._last = 0
        self._tabs: dict[str, Tab] = {}

    def tab(self, *, width: int = 1440, dark: bool = False, javascript: bool = True) -> Tab:
        """A new empty page of its own profile: no cookie of another one."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.ask(f"{domain}.enable")
        phone = width < 600
        tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.ask("Emulation.setEmulatedMedia", features=[scheme])
        if not javascript:
            tab.ask("Emulation.setScriptExecutionDisabled", value=True)
        return tab

    def ask(self, method: str, session: str | None = None, **params) -> dict:
        """One command and its answer; events that come before it are heard."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._hear(answer)

    def listen_until(self, true) -> None:
        """Hears events until something is true."""
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        while not true():
            self._hear(self._next(deadline))

    def _hear(self, message: dict) -> None:
        tab = self._tabs.get(message.get("sessionId", ""))
        if tab is not None and "method" in message:
            tab.hear(message["method"], message["params"])

    def _next(self, deadline: float) -> dict:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._answers], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            more = os.read(self._answers, 1 << 20)
            assert more, "the browser has ended"
            self._left += more
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def open_browser(popen=subprocess.Popen) -> Iterator[Browser]:
    """Starts one and ends it; `popen` may start it elsewhere (in a lab)."""
    if shutil.which("chromium") is None:
        pytest.skip("needs Debian's package chromium, which `make test` installs")
    profile = tempfile.mkdtemp(prefix="chromium-")
    read_commands, to = os.pipe()
    answers, write_answers = os.pipe()
    # Chromium takes commands from descriptor 3 and answers on 4.
    shell = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
    command: Sequence[str] = ["bash", "-c", shell, "bash", *_COMMAND, f"--user-data-dir={profile}"]
    process = popen(
        command,
        pass_fds=(read_commands, write_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read_commands)
    os.close(write_answers)
    try:
        browser = Browser(process, to, answers)
        yield browser
        with contextlib.suppress(AssertionError, OSError):
            browser.ask("Browser.close")
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(to)
        os.close(answers)
        shutil.rmtree(profile, ignore_errors=True)
