"""A fake OpenAI-compatible server."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """Answers with what ``answer`` says of the prompt: a content, a status, or bytes."""

    answer: Any = staticmethod(lambda turns: "?")
    headers: dict[str, str]
    asked: list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body | {"path": self.path, "key": self.headers["Authorization"]})
        answer = self.server.answer(body["messages"])
        self.send_response(answer if isinstance(answer, int) else 200)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        message = {"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]}
        self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(message).encode())

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.asked, made.headers = [], {}
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}/v1"
