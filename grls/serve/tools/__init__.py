"""The retrievers as tools of an agent (Model Context Protocol): ``grls serve FOLDER --mcp stdio``.

``server`` (which needs the extra ``mcp``) has the tools, with the queues and the limits of the server, and
offers them over standard input and output, or at ``/mcp`` of the HTTP server.
"""
