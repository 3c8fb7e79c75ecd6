"""``grls serve``: retrievers behind HTTP."""

from __future__ import annotations

from grls.errors import ConfigError, Option
from grls.io.arguments import Count
from grls.models.option_names import Device, Precision
from grls.serve.options import (
    NO_ANSWERS,
    OPEN_ACCESS,
    URL,
    ServerOptions,
    ToolTransport,
    read_options,
)
from grls.serve.start import Port, named_folders


def serve(
    folder: list[str],
    *,
    host: str = "127.0.0.1",
    port: Port = 8000,
    server: str | None = None,
    mcp: ToolTransport | None = None,
    url_field: str = URL,
    device: Device = "auto",
    precision: Precision = "float32",
    examples: str | None = None,
    ray: str | None = None,
    replicas: Count = 1,
) -> None:
    """Serve retrievers behind HTTP.

    The page at / asks them: it shows the hops as they are found, passages, and the beam. POST /v1/search and
    /v1/stream answer queries, /v1/explain says why passages are found or not, /v1/trace what the beam
    considers, and a language model that the file of --server names answers at /v1/answer; /openapi.json
    describes all. Requests that come in together are searched as one batch, and a generator lets them join
    the search that runs. A signal ends the server once what runs is finished. With --ray several replicas
    share the requests. Needs `pip install "grls[serve]"`.

    Args:
        folder: Retriever folders of any kind, or name=folder. The first one answers requests that name
            none.
        host: Address to listen at. The default is reached from this machine alone.
        port: Port to listen at.
        server: File of YAML or JSON with the options of the server: limits, access (keys, host names) and
            answer (a language model). The guide lists them.
        mcp: Offer search, fetch, hops and retrievers as tools of an agent (Model Context Protocol; needs the
            extra mcp). stdio: over standard input and output, without an HTTP server; http: also at /mcp.
        url_field: Field of the metadata with the address of a passage (http:// or https://), which agents
            cite.
        examples: File with queries to try, one a line, which the page at / offers; null: queries of the data
            set that grls fit left beside the retriever.
        ray: Address of a Ray cluster on which Ray Serve runs the replicas of the server: HOST:PORT, auto, or
            local for a cluster on this machine (needs the extra ray); null: this process serves.
        replicas: Number of replicas, each with the models of its own; with --ray at least 2, since one at a
            time is replaced by a new version.
    """
    from grls.io.ending import require

    if ray is None and replicas > 1:
        raise ConfigError(
            f"{Option('replicas', replicas)}: one process is one replica; add {Option('ray', 'local')} for "
            "replicas on this machine, or the address of a Ray cluster."
        )
    require("serve", "grls serve")
    if mcp is not None:
        require("mcp", "grls serve --mcp")
    options = ServerOptions(
        named_folders(folder),
        **vars(read_options(server)),
        device=device,
        precision=precision,
        examples=examples,
        tools=mcp == "http",
        url_field=url_field,
    )
    if mcp == "stdio":
        if ray is not None:
            raise ConfigError("--mcp stdio has one process, which its client starts: leave --ray out.")
        if options.access != OPEN_ACCESS:
            raise ConfigError(f"{server}: --mcp stdio has one client, that starts it: leave access out.")
        if options.answer != NO_ANSWERS:
            raise ConfigError(f"{server}: --mcp stdio searches and answers no questions: leave answer out.")
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
