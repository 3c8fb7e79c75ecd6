"""What a worker process serves: the options of the command, as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from grls.serve.answers.options import NO_ANSWERS, AnswerOptions
from grls.serve.options import OPEN_ACCESS, USUAL_LIMITS, AccessOptions, RequestLimits


@dataclass(frozen=True)
class WorkerTask:
    """What a worker process serves.

    Args:
        folders: Folders, or ``name=folder``.
        limits: The limits of requests.
        access: Who may use the server; the worker process checks the token of the administrator alone.
        device: The device of models.
        precision: The precision of retrievers.
        answer: The language model.
        examples: File with queries to try.
        tools: Offer the tools of an agent at /mcp.
        socket: The Unix socket that it listens at.
        numbers: Name -> the number of its last version in the worker process before.
    """

    folders: tuple[str, ...]
    limits: RequestLimits = USUAL_LIMITS
    access: AccessOptions = OPEN_ACCESS
    device: str = "auto"
    precision: str = "float32"
    answer: AnswerOptions = NO_ANSWERS
    examples: str | None = None
    tools: bool = False
    socket: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)

    def line(self) -> bytes:
        """The task as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def read_task(line: bytes) -> WorkerTask:
    """The task in a line of JSON."""
    from pydantic import TypeAdapter  # late: the front process reads none

    return TypeAdapter(WorkerTask).validate_json(line)
