"""The addresses of the server.

``table`` lists them, with the page at ``/``, health, metrics and the description, and what loads new
versions. ``search`` answers queries, sends hops as they are found, shows passages, and lists what can be
asked. ``trace`` says what the beam considers and why passages are found or not, and has a language model
answer.
"""
