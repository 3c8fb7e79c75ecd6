"""Parts of an index in other processes: each opens its part, and answers over a pipe.

A message is a line of JSON and the bytes of its arrays, so nothing is unpickled. A part process ends with the
process that started it, because its pipe closes.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from grls.errors import ConfigError, GrlsError, IndexFormatError
from grls.index.array_files import map_array
from grls.index.ranges.parts import ANSWERS, Arrays, Facts, IndexParts, RangePart, facts_of
from grls.index.rows import Array
from grls.index.storage import load_index


class PartsElsewhere(IndexParts):
    """Parts in processes of this machine, one a part.

    Args:
        places: For each part its folder and the file of its numbers, both checked.

    Raises:
        IndexFormatError: A part has changed meanwhile.
        ConfigError: A process ended.
    """

    def __init__(self, places: Sequence[tuple[Path, Path]]):
        self._lock = Lock()
        self._pipes: list[Connection] = []
        self._processes = []
        context = multiprocessing.get_context("spawn")
        for folder, numbers in places:
            here, there = context.Pipe()
            process = context.Process(target=serve_part, args=(there, str(folder), str(numbers)), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        self.facts = [Facts(**self._receive(part)[0]["facts"]) for part in range(len(places))]

    def ask(self, what: str, asked: Mapping[int, Arrays]) -> dict[int, list[Array]]:  # noqa: D102
        with self._lock:
            for part, arrays in asked.items():
                self._send(part, what, arrays)
            return {part: self._receive(part)[1] for part in asked}

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(5)

    def _send(self, part: int, what: str, arrays: Arrays) -> None:
        try:
            self._pipes[part].send_bytes(packed({"what": what}, arrays))
        except OSError:
            raise self._ended(part) from None

    def _receive(self, part: int) -> tuple[dict[str, Any], list[Array]]:
        try:
            head, arrays = unpacked(self._pipes[part].recv_bytes())
        except (EOFError, OSError):
            raise self._ended(part) from None
        if "error" in head:
            raise IndexFormatError(head["error"])
        return head, arrays

    def _ended(self, part: int) -> ConfigError:
        return ConfigError(
            f"the process of part {part} of the index has ended (killed, or for lack of memory): open the "
            "retriever again."
        )


class ServedPart:
    """A part that answers messages in another process.

    Args:
        folder: Its folder, which was checked.
        numbers: The file of its numbers.
    """

    def __init__(self, folder: str, numbers: str):
        self._part: RangePart | None = None
        self._error = ""
        try:
            self._part = RangePart(load_index(folder, verify=False), map_array(Path(numbers)))
        except (GrlsError, OSError, ValueError) as error:
            self._error = str(error)

    def facts(self) -> bytes:
        """A message with its size, or why it cannot be opened."""
        if self._part is None:
            return packed({"error": self._error}, ())
        return packed({"facts": facts_of(self._part)._asdict()}, ())

    def answer(self, message: bytes) -> bytes:
        """The answer to a question."""
        if self._part is None:
            return packed({"error": self._error}, ())
        head, arrays = unpacked(message)
        try:
            return packed({}, ANSWERS[head["what"]](self._part, arrays))
        except GrlsError as error:
            return packed({"error": error.text}, ())


def serve_part(pipe: Connection, folder: str, numbers: str) -> None:
    """Open a part and answer until the pipe closes; this is what a part process runs."""
    part = ServedPart(folder, numbers)
    pipe.send_bytes(part.facts())
    while True:
        try:
            pipe.send_bytes(part.answer(pipe.recv_bytes()))
        except (EOFError, OSError, KeyboardInterrupt):
            return


def packed(head: dict[str, Any], arrays: Arrays) -> bytes:
    """A message as bytes."""
    kept = [np.ascontiguousarray(array, dtype=np.int64) for array in arrays]
    line = json.dumps({**head, "lengths": [len(array) for array in kept]})
    return b"\n".join([line.encode(), b"".join(array.tobytes() for array in kept)])


def unpacked(message: bytes) -> tuple[dict[str, Any], list[Array]]:
    """The head and the arrays of a message."""
    line, _, body = message.partition(b"\n")
    head = json.loads(line)
    arrays, place = [], 0
    for length in head.pop("lengths"):
        arrays.append(np.frombuffer(body, dtype=np.int64, count=length, offset=place))
        place += 8 * length
    return head, arrays
