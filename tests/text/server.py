"""A file server on this machine that can be set to misbehave."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """What is at `url`; `asked` has the Range header of every request so far, None for the whole."""

    content: bytes
    url: str = ""
    status: int = 200
    ranges: bool = True  # whether a Range is heeded
    wrong_range: bool = False  # whether it is answered by another one
    cut_at: int | None = None  # the connection closes after so many bytes
    says_length: bool = True
    hangs: bool = False  # never answers
    asked: list[str | None] = field(default_factory=list)


@contextmanager
def serving(content: bytes) -> Iterator[Served]:
    served, released = Served(content), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers["Range"]
            served.asked.append(asked)
            if served.hangs:
                released.wait(10)
                return
            if served.status != 200:
                self.send_error(served.status)
                return
            start = int(re.findall(r"\d+", asked)[0]) if asked and served.ranges else 0
            if start >= len(content) > 0 and asked and served.ranges:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            if served.wrong_range:
                start //= 2
            body = served.content[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if served.says_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: served.cut_at])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}/book.txt"
    try:
        yield served
    finally:
        released.set()
        server.shutdown()
        server.server_close()
        thread.join()
