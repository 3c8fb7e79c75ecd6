"""Serves retrievers until a signal ends the server; running requests are finished."""

from __future__ import annotations

from collections.abc import Sequence

from grls.serve.answers.options import NO_ANSWERS, AnswerOptions
from grls.serve.app import create_app
from grls.serve.guards import accepted_hosts, read_admin_token
from grls.serve.listening import address_of, check_port, listening, log_lines, until_signal
from grls.serve.options import AccessOptions, RequestLimits
from grls.serve.served import queries_to_try
from grls.serve.serving import open_serving
from grls.serve.start import loading, named_folders, say


def run_server(
    folders: Sequence[str],
    host: str,
    port: int,
    limits: RequestLimits,
    access: AccessOptions,
    device: str,
    precision: str,
    answer: AnswerOptions = NO_ANSWERS,
    examples: str | None = None,
    tools: bool = False,
) -> None:
    """Open retrievers and serve them, with the options of ``grls serve``; ``tools``: also at /mcp, to agents.

    Raises:
        ConfigError: A name, an option or the port cannot be used.
        DataError: A folder is no retriever, or a file of keys or queries cannot be used.
        MismatchError: A folder is damaged.
    """
    named_folders(folders)  # refuses wrong names before the first line
    admin = read_admin_token(access.admin)
    check_port(host, port)
    say(loading(folders, address_of(host, port)))
    queries = () if examples is None else queries_to_try(examples)
    serving = open_serving(folders, limits, device, precision, answer, say=say)
    serving.admin, serving.examples = admin, queries
    try:
        app = create_app(serving, access, accepted_hosts(host, access.allowed_hosts), tools)
        log_lines()
        server = listening(app, host, port, limits.seconds)
        with until_signal(server):
            server.run()
    finally:
        serving.close()
