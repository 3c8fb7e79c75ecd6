"""The retrievers as tools of an agent (Model Context Protocol): ``grls serve FOLDER --mcp stdio``.

``server`` (which needs the extra ``mcp``) has the tools, with the queues and the limits of the server, and
offers them line by line, or at ``/mcp`` of the HTTP server. ``stdio`` answers the first line of standard
input, before ``server`` is imported.
"""
