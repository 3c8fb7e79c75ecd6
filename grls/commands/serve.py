"""``grls serve``: retrievers behind HTTP."""

from __future__ import annotations

from grls.errors import ConfigError, Option, at_least, bounded
from grls.models.option_names import Precision
from grls.serve.answers.options import NO_ANSWERS, AnswerOptions
from grls.serve.options import (
    OPEN_ACCESS,
    URL,
    USUAL_LIMITS,
    AccessOptions,
    RequestLimits,
    ServerOptions,
    ToolTransport,
)


def serve(
    folder: list[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: RequestLimits = USUAL_LIMITS,
    access: AccessOptions = OPEN_ACCESS,
    answer: AnswerOptions = NO_ANSWERS,
    mcp: ToolTransport | None = None,
    url_field: str = URL,
    device: str = "auto",
    precision: Precision = "float32",
    examples: str | None = None,
    ray: str | None = None,
    replicas: int = 1,
) -> None:
    """Serve retrievers behind HTTP.

    The page at / asks them: it shows the hops as they are found, passages, and the beam. POST /v1/search and
    /v1/stream answer queries, /v1/explain says why passages are found or not, /v1/trace what the beam
    considers, and with --answer.model a language model answers at /v1/answer; /docs describes all. Requests
    that come in together are searched as one batch, and a generator lets them join the search that runs. A
    signal ends the server once what runs is finished. With --ray several replicas share the requests. Needs
    `pip install "grls[serve]"`.

    Args:
        folder: Retriever folders of any kind, or name=folder. The first one answers requests that name
            none.
        host: Address to listen at. The default is reached from this machine alone.
        port: Port to listen at.
        limits: The limits of requests.
        access: Who may use the server.
        answer: The language model that answers questions.
        mcp: Offer search, fetch, hops and retrievers as tools of an agent (Model Context Protocol; needs the
            extra mcp). stdio: over standard input and output, without an HTTP server; http: also at /mcp.
        url_field: Field of the metadata with the address of a passage (http:// or https://), which agents
            cite.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: Precision of the models: bfloat16 where the processor has it; float16-weights
            or int8 on CPUs (generators only); auto measures.
        examples: File with queries to try, one a line, which the page at / offers; null: queries of the data
            set that grls fit left beside the retriever.
        ray: Address of a Ray cluster on which Ray Serve runs the replicas of the server: HOST:PORT, auto, or
            local for a cluster on this machine (needs the extra ray); null: this process serves.
        replicas: Number of replicas, each with the models of its own; with --ray at least 2, since one at a
            time is replaced by a new version.
    """
    from grls.io.ending import require

    bounded("[0, 65535]", port=port)
    at_least(1, replicas=replicas)
    if ray is None and replicas > 1:
        raise ConfigError(
            f"{Option('replicas', replicas)}: one process is one replica; add {Option('ray', 'local')} for "
            "replicas on this machine, or the address of a Ray cluster."
        )
    require("serve", "grls serve")
    if mcp is not None:
        require("mcp", "grls serve --mcp")
    options = ServerOptions(
        tuple(folder), limits, access, device, precision, answer, examples, mcp == "http", url_field
    )
    if mcp == "stdio":
        if ray is not None:
            raise ConfigError("--mcp stdio has one process, which its client starts: leave --ray out.")
        if access != OPEN_ACCESS:
            raise ConfigError("--mcp stdio has one client, that starts it: leave --access out.")
        if answer != NO_ANSWERS:
            raise ConfigError("--mcp stdio searches and answers no questions: leave --answer out.")
        from grls.serve.tools.stdio import connect

        client = connect(options)  # before what follows is imported
        from grls.serve.tools.server import serve_lines

        serve_lines(options, client)
    elif ray is not None:
        if replicas < 2:
            raise ConfigError(
                f"{Option('replicas', replicas)}: {Option('ray')} needs at least 2, since a new version "
                "takes the place of one replica after the other."
            )
        from grls.serve.replicas import run_replicas

        run_replicas(options, host, port, ray, replicas)
    else:
        from grls.serve.run import run_server

        run_server(options, host, port)
