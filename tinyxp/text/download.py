"""A download over HTTP that goes on where it was cut off, with the standard library alone."""

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
LENGTH_LIMIT = 64 << 20  # bytes; what is longer is no text that is asked for here
_PIECE = 1 << 16

Show = Callable[[int, int], None]


def download(url: str, part: Path, *, show: Show | None = None) -> None:
    """Makes `part` the whole of what `url` gives, asking only for what comes after the bytes it has.

    A server that gives the whole instead is taken from the start. `show(done, total)` counts bytes; total is
    0 where the server does not say. Whatever has come stays in `part`. ConnectionError, an OSError, where
    the server refuses or the bytes end early; CheckpointError for more than LENGTH_LIMIT bytes.
    """
    try:
        _download(url, part, show)
    except HTTPError as error:
        error.close()
        raise ConnectionError(f"{url}: the server answers {error.code} {error.reason}") from None
    except URLError as error:
        raise ConnectionError(f"{url}: {error.reason}") from None
    except (HTTPException, ConnectionError, TimeoutError) as error:
        kept = part.stat().st_size if part.exists() else 0
        raise ConnectionError(f"{url}: {error}; {kept:,} bytes are kept, the next try goes on") from None


def _download(url: str, part: Path, show: Show | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    try:
        reply = _ask(url, have)
    except HTTPError as error:
        if error.code != 416 or not have:  # 416: nothing comes after these bytes
            raise
        error.close()
        if error.headers["Content-Range"] == f"bytes */{have}":
            return
        reply = _ask(url, 0)
    if reply.status == 206 and _first_byte(reply) != have:
        reply.close()
        reply = _ask(url, 0)
    with reply:
        _append(reply, part, have if reply.status == 206 else 0, show)


def _ask(url: str, start: int) -> HTTPResponse:
    headers = {"User-Agent": "tinyxp"} | ({"Range": f"bytes={start}-"} if start else {})
    reply: HTTPResponse = urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), timeout=TIMEOUT
    )
    return reply


def _first_byte(reply: HTTPResponse) -> int | None:
    found = re.match(r"bytes (\d+)-", reply.headers["Content-Range"] or "")
    return int(found[1]) if found else None


def _append(reply: HTTPResponse, part: Path, done: int, show: Show | None) -> None:
    length = reply.headers["Content-Length"]
    total = 0
    with suppress(TypeError, ValueError):  # absent, or no number
        total = done + int(length)
    with part.open("ab" if done else "wb") as file:
        while piece := reply.read(_PIECE):
            done += len(piece)
            if done > LENGTH_LIMIT:
                raise CheckpointError(f"{reply.url}: more than {LENGTH_LIMIT:,} bytes come")
            file.write(piece)
            if show is not None:
                show(done, total)
    if done < total:
        raise ConnectionError(f"cut off after {done:,} of {total:,} bytes")
