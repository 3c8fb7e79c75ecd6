"""The options of ``grls serve``: those of the command, and those in the file of ``--server``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from grls.answer.dsp.options import USUAL_PROGRAM, ProgramOptions
from grls.answer.options import USUAL_FOLLOW_UP, FollowUpOptions
from grls.answer.riches.options import USUAL_KEYS, USUAL_PROMPT, KeyOptions, PromptOptions
from grls.decode.interleave.options import USUAL_INTERLEAVE, InterleaveOptions
from grls.errors import ConfigError, Option
from grls.io.arguments import Count, PositiveFloat, options
from grls.io.recipes import recipe_values
from grls.retrieve.spec import from_record

ToolTransport = Literal["stdio", "http"]
"""The transport of the tools of an agent."""


@options("limits")
class RequestLimits:
    """The limits of requests.

    Args:
        queue: Requests that may wait for a retriever; a further one is refused (503).
        seconds: Time that a request may take, with the time in the queue.
        wait: Seconds in the queue. A request that is expected to wait longer is refused (429); null: half of
            ``seconds``.
        header: Seconds that a client has for the header of a request, for its body, and for each part of the
            answer.
        connections: Connections that may be open, if the system gives the process twice as many files. Of
            more, the one that has waited longest for its client is closed.
        body: Largest body of a request, in bytes.
        queries: Largest number of queries in a request.
        k: Largest number of hits of a query.
        hops: Largest number of hops that a request may ask for.
        characters: Largest number of characters of a query.
        batch: Largest number of queries that are searched together.
    """

    queue: Count = 256
    seconds: PositiveFloat = 60.0
    wait: PositiveFloat | None = None
    header: PositiveFloat = 10.0
    connections: Count = 1_000
    body: Count = 1_048_576
    queries: Count = 64
    k: Count = 100
    hops: Count = 8
    characters: Count = 4_000
    batch: Count = 64


@options("access")
class AccessOptions:
    """Who may use the server.

    Args:
        keys: File with API keys, one a line. Each request then needs one: the header
            ``Authorization: Bearer KEY``; null: none is needed.
        origins: Origins of web pages that may call the server from a browser (CORS), such as
            https://example.org. Empty: none.
        allowed_hosts: Further host names under which the server is reached, without ports, such as
            search.example.org behind a proxy; '*': any. A server at a loopback address answers requests for
            localhost, 127.0.0.1 and these names alone.
        admin: File with the token of POST /admin/reload; null: that of the environment variable
            GRLS_ADMIN_TOKEN_FILE, or GRLS_ADMIN_TOKEN, which has the token; without any, nothing can be
            reloaded.
    """

    keys: str | None = None
    origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    admin: str | None = None

    def __post_init__(self) -> None:
        origin = r"https?://[A-Za-z0-9.\[\]:-]+", "an origin such as https://example.org"
        host = r"\*|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+", "a host name without port such as search.example.org"
        for name, values, (form, expected) in (
            ("origins", self.origins, origin),
            ("allowed_hosts", self.allowed_hosts, host),
        ):
            for value in values:
                if not re.fullmatch(form, value):
                    raise ConfigError(f"{Option(f'access.{name}')}: expected {expected}, got {value!r}.")


URL = "url"
"""The default field of the address of a passage."""
USUAL_LIMITS = RequestLimits()
"""The default limits."""
_SPARE = 64
"""Requests beside those that the queues take."""


OPEN_ACCESS = AccessOptions()
"""No keys, no other origin."""

ServedProgram = Literal["openqa", "multihop", "conversational", "retrieve-then-read", "self-ask"]
AnswerMethod = Literal["direct", "follow-up", "riches", ServedProgram]
PROGRAMS: tuple[ServedProgram, ...] = get_args(ServedProgram)
"""The methods that are programs of demonstrate-search-predict; they need the extra ``dsp``."""


@options("answer")
class AnswerOptions:
    """The language model that answers questions, and how it does.

    Args:
        model: Folder, hub name or .gguf file of a language model, causal or encoder-decoder; for programs
            also a served one, as in `grls answer dsp`; null: the server answers no questions.
        methods: The methods that requests may name; the first one is the default. direct, follow-up and
            riches, or a program: openqa, multihop, conversational, retrieve-then-read, self-ask.
        k: Passages that the model reads for a question, where a request does not say.
        tokens: Largest length limit (max_new_tokens) that a request may ask for.
        queue: Questions that may wait; a further one is refused (503).
        reader: How the model reads and writes (direct, follow-up).
        keys: The keys that may be quoted (riches).
        prompt: The prompt before an answer (riches).
        search: How free text and quotes are decoded (riches).
        dsp: Options of the programs.
    """

    model: str | None = None
    methods: tuple[AnswerMethod, ...] = ("direct",)
    k: Count = 3
    tokens: Count = 256
    queue: Count = 32
    reader: FollowUpOptions = USUAL_FOLLOW_UP
    keys: KeyOptions = USUAL_KEYS
    prompt: PromptOptions = USUAL_PROMPT
    search: InterleaveOptions = USUAL_INTERLEAVE
    dsp: ProgramOptions = USUAL_PROGRAM

    def __post_init__(self) -> None:
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise ConfigError(
                f"{Option('answer.methods')} must name a method, and none twice: got {list(self.methods)}."
            )
        if self.dsp.demonstrations.how != "none":
            raise ConfigError(
                f"{Option('answer.dsp.demonstrations')} needs the questions of a data set: leave it out."
            )
        if self.model is None:
            changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
            if changed:
                raise ConfigError(
                    f"{Option(f'answer.{changed[0]}')} needs a language model: give {Option('answer.model')}."
                )
        elif self.is_remote and not set(self.methods) <= set(PROGRAMS):
            raise ConfigError(
                "a model that is served elsewhere answers by programs alone: name some of "
                f"{', '.join(PROGRAMS)} as {Option('answer.methods')}."
            )

    @property
    def is_remote(self) -> bool:
        """Whether the model runs outside of the server."""
        return self.model is not None and self.dsp.calls.is_remote(self.model)


NO_ANSWERS = AnswerOptions()
"""No language model."""


@options()
class FileOptions:
    """The options in the file of ``--server``.

    Args:
        limits: The limits of requests.
        access: Who may use the server.
        answer: The language model that answers questions.
    """

    limits: RequestLimits = USUAL_LIMITS
    access: AccessOptions = OPEN_ACCESS
    answer: AnswerOptions = NO_ANSWERS


def read_options(file: str | None) -> FileOptions:
    """The options in a file of YAML or JSON; None: the defaults."""
    if file is None:
        return FileOptions()
    if not Path(file).is_file():
        raise ConfigError(f"{Option('server', file)}: there is no such file; give one of YAML or JSON.")
    return from_record(FileOptions, recipe_values([file]), Path(file), "")


class ServerOptions(NamedTuple):
    """What a server serves.

    Attributes:
        folders: Name -> folder of each retriever.
        limits: The limits of requests.
        access: Who may use the server.
        device: The device of models.
        precision: The precision of retrievers.
        answer: The language model.
        examples: File with queries to try; None: those of the data set beside a retriever.
        tools: Offer the tools of an agent at /mcp.
        url_field: The field of the metadata with the address of a passage, which the tools show.
    """

    folders: Mapping[str, str]
    limits: RequestLimits = USUAL_LIMITS
    access: AccessOptions = OPEN_ACCESS
    device: str = "auto"
    precision: str = "float32"
    answer: AnswerOptions = NO_ANSWERS
    examples: str | None = None
    tools: bool = False
    url_field: str = URL

    @property
    def most_requests(self) -> int:
        """The number of requests that it takes at once: those that its queues and batches take, and a few."""
        return (self.limits.queue + self.limits.batch) * len(self.folders) + self.answer.queue + _SPARE
