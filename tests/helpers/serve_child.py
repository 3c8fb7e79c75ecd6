"""A worker process for tests: it starts at once, and its retriever does what a query says.

"die" kills the process, "wait" waits until the file ``go`` of its folder is there. A stream dies at its
second hop if the file ``deadly`` is there, which is removed, once the file ``got`` is there, too. Each
process reads the folder again.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

from fastapi import FastAPI

from grls.api.searcher import Searcher
from grls.data.filters import Allow
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import DataError
from grls.retrieve.base import Description, SoFar
from grls.retrieve.queries import queries_of
from grls.serve.app import show_health, show_metrics, show_ready, version_body
from grls.serve.bodies import FoundBody, HealthBody, VersionBody
from grls.serve.front.child import Made, serve_task
from grls.serve.front.task import WorkerTask
from grls.serve.guards import Metrics
from grls.serve.problems import add_handlers
from grls.serve.routes.search import answer_search, answer_stream
from grls.serve.served import Opened, Served, Version
from grls.serve.serving import Serving


class Letters:
    """A corpus that takes no time to make."""

    source, names = "letters", "abcdef"

    def __len__(self) -> int:
        return len(self.names)

    def numbers(self, ids: Sequence[str]) -> list[int | None]:
        return [self.names.index(name) if name in self.names else None for name in ids]

    def passages(self, numbers: Sequence[int]) -> list[Passage]:
        return [Passage(self.names[number], f"text {self.names[number]}") for number in numbers]

    def with_metadata(self, numbers: Sequence[int]) -> list[tuple[Passage, dict[str, object]]]:
        return [(passage, {}) for passage in self.passages(numbers)]


class Deadly:
    """Finds the passage that a query names, unless it dies."""

    kind, corpus = "deadly", Letters()

    def __init__(self, folder: Path):
        self.folder = folder

    def describe(self) -> Description:
        return Description("deadly", "none")

    def fingerprint(self) -> str:
        return "deadly"

    def _obey(self, text: str) -> None:
        if text == "wait":
            (self.folder / "waiting").touch()
            while not (self.folder / "go").exists():
                time.sleep(0.005)
        if text == "die":
            os.kill(os.getpid(), signal.SIGKILL)

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        asked = [query.text for query in queries_of(queries)]
        with (self.folder / "searched").open("a") as lines:
            lines.write("".join(f"{text}\n" for text in asked))
        for text in asked:
            self._obey(text)
        return [[Hit(text if text in Letters.names else "a", 1.0)] for text in asked]

    def walk(self, queries: Sequence[Query | str], allow: Allow = None) -> Iterator[SoFar]:
        (query,) = queries_of(queries)
        for hop in (1, 2, 3):
            if hop > 1:
                self._obey(query.text)
            if hop == 2 and (self.folder / "deadly").exists():
                (self.folder / "deadly").unlink()
                while not (self.folder / "got").exists():
                    time.sleep(0.005)
                if query.text == "changed":
                    (self.folder / "other").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            names = "bcd" if (self.folder / "other").exists() else "abc"
            chain = Chain(tuple(Hit(name, -1.0) for name in names[:hop]), -1.0 * hop, hop == 3)
            yield SoFar(hop, hop == 3, lambda chain=chain: [[chain]])


class Ready(Served):
    """A retriever that is not read from a folder."""

    def __init__(self, folder: Path, task: WorkerTask):
        self.name, self.folder = folder.name, folder
        number = task.numbers.get(self.name, 0) + 1
        how = Opened("cpu", "float32", task.limits)
        self.version = Version(self.name, number, Searcher(Deadly(folder), folder), how)  # type: ignore[arg-type]


def reload_version() -> VersionBody:
    return VersionBody(retriever="deadly", version=7, passages=6)


def made_of(task: WorkerTask) -> Made:
    folder = Path(task.folders[0])
    if (folder / "broken").exists():
        raise DataError("the folder is broken.", folder)
    if (folder / "weak").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    serving = Serving({folder.name: Ready(folder, task)}, task.limits, metrics=Metrics(requests=False))
    app = FastAPI()
    app.state = SimpleNamespace(serving=serving)  # type: ignore[assignment]
    post, get = ["POST"], ["GET"]
    app.add_api_route("/v1/search", answer_search, methods=post, response_model=FoundBody)
    app.add_api_route("/v1/stream", answer_stream, methods=post, response_model=None)
    app.add_api_route("/admin/reload", reload_version, methods=post, response_model=VersionBody)
    for path, show in (("/health", show_health), ("/ready", show_ready)):
        app.add_api_route(path, show, methods=get, response_model=HealthBody)
    app.add_api_route("/metrics", show_metrics, methods=get, response_model=None)
    serving.metrics.watch_queues(serving.queues, serving.questions)
    add_handlers(app)
    return Made(app, [version_body(one.version) for one in serving.retrievers.values()])


if __name__ == "__main__":
    sys.exit(serve_task(made_of))
