"""``POST /v1/answer``: a language model answers questions from the retrievers of the server.

A question becomes a job of one further thread, that of the language model. What it retrieves goes through the
queue of the retriever, where it shares batches with searches. ``options`` are those of the command.
``answering`` is the thread with the model and what it does: it calls the readers, RICHES and
demonstrate-search-predict (imported late: DSPy is an extra), and ends what nobody waits for.
"""
