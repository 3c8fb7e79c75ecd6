"""``POST /v1/answer``: a language model answers questions from the retrievers of the server.

A question becomes a job of one further thread, that of the language model. Its searches go through the queue
of the retriever, where they share batches with other searches. ``options`` are the options of the command.
``answering`` is the thread with the model: it calls the readers, RICHES and demonstrate-search-predict
(imported late: DSPy is an extra), and ends answers whose clients have gone.
"""
