"""Downloads over HTTP that resume after an interruption, with the standard library alone."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError

from tinyxp.errors import CheckpointError

TIMEOUT = 30.0  # seconds to wait for the next byte
LENGTH_LIMIT = 64 << 20  # bytes; no corpus here is longer
_PIECE = 1 << 16

Show = Callable[[int, int], None]


def download(url: str, part: Path, *, show: Show | None = None) -> None:
    """Complete the file ``part`` from ``url``, requesting only the bytes after those that it has.

    If the server sends the whole file instead, the download restarts. ``show(done, total)`` counts bytes;
    total is 0 if the server does not say. The bytes received so far always stay in ``part``. Raises
    ConnectionError, an OSError, if the server refuses or the bytes end early, and CheckpointError for more
    than LENGTH_LIMIT bytes.
    """
    try:
        _download(url, part, show)
    except HTTPError as error:
        error.close()
        raise ConnectionError(f"{url}: the server answers {error.code} {error.reason}") from None
    except URLError as error:
        raise ConnectionError(f"{url}: {error.reason}") from None
    except (HTTPException, ConnectionError, TimeoutError) as error:
        raise ConnectionError(
            f"{url}: {error}; {_size(part):,} bytes are kept, and the next try resumes"
        ) from None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _download(url: str, part: Path, show: Show | None) -> None:
    size = _size(part)
    try:
        reply = _request(url, size)
    except HTTPError as error:
        if error.code != 416 or not size:  # 416: nothing comes after these bytes
            raise
        error.close()
        if error.headers["Content-Range"] == f"bytes */{size}":
            return
        reply = _request(url, 0)
    if reply.status == 206 and _first_byte(reply) != size:
        reply.close()
        reply = _request(url, 0)
    with reply:
        _append(reply, part, size if reply.status == 206 else 0, show)


def _request(url: str, start: int) -> HTTPResponse:
    headers = {"User-Agent": "tinyxp"} | ({"Range": f"bytes={start}-"} if start else {})
    reply: HTTPResponse = urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), timeout=TIMEOUT
    )
    return reply


def _first_byte(reply: HTTPResponse) -> int | None:
    match = re.match(r"bytes (\d+)-", reply.headers["Content-Range"] or "")
    return int(match[1]) if match else None


def _append(reply: HTTPResponse, part: Path, done: int, show: Show | None) -> None:
    length = reply.headers["Content-Length"]
    total = 0
    with suppress(TypeError, ValueError):  # absent, or no number
        total = done + int(length)
    with part.open("ab" if done else "wb") as file:
        while piece := reply.read(_PIECE):
            done += len(piece)
            if done > LENGTH_LIMIT:
                raise CheckpointError(f"{reply.url}: sends more than {LENGTH_LIMIT:,} bytes")
            file.write(piece)
            if show is not None:
                show(done, total)
    if done < total:
        raise ConnectionError(f"cut off after {done:,} of {total:,} bytes")
