"""The addresses of the server.

``table`` lists them. ``search`` answers queries, ``stream`` sends hops as they are found, ``passages`` shows
passages. ``state`` has health, metrics and the description; ``admin`` loads new versions.
"""
