"""The retrievers as tools of an agent (Model Context Protocol): ``grls serve FOLDER --mcp stdio``.

``arguments`` are what they take, ``calls`` what they do, with the queues and the limits of the server.
``server`` (which needs the extra ``mcp``) offers them over standard input and output, or at ``/mcp`` of the
HTTP server.
"""
