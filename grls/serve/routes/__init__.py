"""The addresses of the server.

``table`` lists them. ``search`` answers queries, ``stream`` sends hops as they are found, ``passages`` shows
passages, ``explain`` says why passages are found or not, ``trace`` what the beam considers, ``answer`` has a
language model answer. ``page`` is the page at ``/``, ``retrievers`` lists what can be asked. ``state`` has
health, metrics and the description; ``admin`` loads new versions.
"""
