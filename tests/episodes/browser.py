"""Drives a headless Chromium through a pipe with its DevTools protocol; needs only the browser.

    with Browser() as page:
        page.open(path)
        page.click(10, 20); page.key("ArrowRight"); page.js("document.title"); page.pixels()   # uint8 [h, w, 3]

https://chromedevtools.github.io/devtools-protocol: messages are JSON, each ended by a zero byte, on the
descriptors 3 (to the browser) and 4 (from it).
"""

import base64
import io
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

import numpy as np

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT = 30.0
KEYS = {" ": "Space", "n": "KeyN", "p": "KeyP", "t": "KeyT", "+": "Equal", "-": "Minus"}


def find():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, width=1240, height=900, scale=1):
        self.size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_in, self.write = os.pipe()
        self.read, write_out = os.pipe()

        command = [find(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   "--no-first-run", "--disable-background-networking", "--force-color-profile=srgb",
                   f"--user-data-dir={self.folder.name}", "about:blank"]  # fmt: skip
        # a shell puts the pipes where the browser looks for them
        script = f'exec "$@" 3<&{read_in} 4>&{write_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(read_in, write_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_in)
        os.close(write_out)
        self.number, self.buffer, self.session, self.events = 0, b"", None, []
        try:
            target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")[
                "targetId"
            ]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
            self.call("Emulation.setDeviceMetricsOverride", **self.size)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        os.close(self.write)  # the browser ends when its pipe does, with all its processes
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        self.folder.cleanup()

    def call(self, method, **params):
        """A command's result; events that come meanwhile are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self):
        deadline = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.read, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, hash=""):
        self.events.clear()
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.resolve().as_uri() + hash)
        self.wait("document.readyState == 'complete'")

    def js(self, expression):
        """The value of an expression; what it throws is raised."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, expression):
        deadline = time.monotonic() + TIMEOUT
        while not self.js(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(expression)
            time.sleep(0.02)

    def errors(self):
        """What scripts threw and the page logged as an error since `open`."""
        thrown = [e["params"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        logged = [e["params"]["entry"] for e in self.events if e.get("method") == "Log.entryAdded"]
        return thrown + [entry for entry in logged if entry["level"] == "error"]

    def requests(self):
        """Addresses asked for since `open`."""
        sent = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["request"]["url"] for event in sent]

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def click_in(self, selector, x=None, y=None):
        """Click an element, at (x, y) from its corner or in its middle."""
        box = self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView("
                      "{block: 'nearest'}); const b = e.getBoundingClientRect(); "
                      "return [b.x, b.y, b.width, b.height]; })()")  # fmt: skip
        self.click(box[0] + (box[2] / 2 if x is None else x), box[1] + (box[3] / 2 if y is None else y))

    def key(self, key, shift=False):
        common = {"key": key, "code": KEYS.get(key, key), "modifiers": 8 if shift else 0}
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def prefer(self, scheme):
        """prefers-color-scheme: dark or light."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def png(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def pixels(self):
        """The window's picture, uint8 [height, width, 3]."""
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(self.png())).convert("RGB"))
