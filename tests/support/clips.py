"""Animated pictures of a page: screenshots with a caption, stored as one PNG with several frames (APNG)."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

FRAME_MS = 2_600
LAST_MS = 5_000
SIGNATURE = b"\x89PNG\r\n\x1a\n"

# Draws a screenshot with its caption and returns the part that differs from the frame before, as PNG.
DRAW = """
async ([data, caption]) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
  const bar = 34;
  const canvas = new OffscreenCanvas(image.width, image.height + bar);
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "#1d2433";
  pen.fillRect(0, 0, canvas.width, bar);
  pen.fillStyle = "#ffffff";
  pen.font = "600 16px sans-serif";
  pen.textBaseline = "middle";
  pen.fillText(caption, 16, bar / 2);
  pen.drawImage(image, 0, bar);
  const pixels = pen.getImageData(0, 0, canvas.width, canvas.height);
  const now = new Uint32Array(pixels.data.buffer);
  const before = window.lastFrame;
  let [left, top, right, bottom] = [canvas.width, canvas.height, 0, 0];
  for (let y = 0; y < canvas.height; y++) {
    for (let x = 0; x < canvas.width; x++) {
      if (before && before[y * canvas.width + x] === now[y * canvas.width + x]) continue;
      left = Math.min(left, x); right = Math.max(right, x + 1);
      top = Math.min(top, y); bottom = Math.max(bottom, y + 1);
    }
  }
  if (right <= left) [left, top, right, bottom] = [0, 0, 1, 1];
  window.lastFrame = now;
  const part = new OffscreenCanvas(right - left, bottom - top);
  part.getContext("2d").putImageData(pixels, -left, -top);
  const bytes = new Uint8Array(await (await part.convertToBlob({ type: "image/png" })).arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return { left, top, width: right - left, height: bottom - top, png: btoa(text) };
}
"""


class Clip:
    """Frames of a page in the order in which they were taken. A clip that is not enabled takes none."""

    def __init__(self, page: Page, *, enabled: bool) -> None:
        self._page = page
        self._enabled = enabled
        self._shots: list[tuple[str, str]] = []

    def frame(self, caption: str) -> None:
        if self._enabled:
            # A screenshot of Playwright may add a style, which the content security policy refuses.
            session = self._page.context.new_cdp_session(self._page)
            self._shots.append((session.send("Page.captureScreenshot")["data"], caption))
            session.detach()

    def write(self, path: Path) -> None:
        """Store the clip. Its frames are drawn on another page, because the watched one permits no data: URLs."""
        browser = self._page.context.browser
        assert browser is not None
        page = browser.new_page()
        parts: list[dict[str, Any]] = [page.evaluate(DRAW, list(shot)) for shot in self._shots]
        page.close()
        path.write_bytes(animated(parts))


def animated(parts: list[dict[str, Any]]) -> bytes:
    """Return an APNG of parts of a picture, each with its place and its PNG; the first one is the whole picture."""
    made = [SIGNATURE]
    sequence = 0
    for at, part in enumerate(parts):
        chunks = list(read_chunks(base64.b64decode(part["png"])))
        if at == 0:
            made.append(chunk(b"IHDR", next(data for kind, data in chunks if kind == b"IHDR")))
            made.append(chunk(b"acTL", struct.pack(">II", len(parts), 0)))
        delay = LAST_MS if at == len(parts) - 1 else FRAME_MS
        control = struct.pack(
            ">IIIIIHHBB",
            sequence,
            part["width"],
            part["height"],
            part["left"],
            part["top"],
            delay,
            1000,
            0,
            0,
        )
        made.append(chunk(b"fcTL", control))
        sequence += 1
        pixels = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
        data = zlib.compress(pixels, 9)
        if at == 0:
            made.append(chunk(b"IDAT", data))
        else:
            made.append(chunk(b"fdAT", struct.pack(">I", sequence) + data))
            sequence += 1
    made.append(chunk(b"IEND", b""))
    return b"".join(made)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def read_chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    found = []
    at = len(SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + size]))
        at += 12 + size
    return found
