"""``POST /v1/answer``: a language model answers questions from the retrievers of the server.

A question becomes a job of one further thread, that of the language model. What it retrieves goes through the
queue of the retriever, where it shares batches with searches. ``options`` are those of the command,
``bodies`` the request and the response. ``answering`` is the thread with the model, ``jobs`` what it does.
``methods`` call the readers and RICHES, ``programs`` demonstrate-search-predict (imported late: DSPy is an
extra). ``through`` is a retriever behind its queue. ``gone`` ends what nobody waits for.
"""
