"""The retrievers as tools of an agent (Model Context Protocol): ``grls serve FOLDER --mcp stdio``.

``calls`` are the tools: search, hops, passages. They use the queues and the limits of the server. ``server``
(which needs the extra ``mcp``) offers them over standard input and output, or at ``/mcp`` of the HTTP server.
"""
