"""Benchmarks and studies.

Benchmarks print ratios against named rivals, measured in the same run: ``index``, ``decode``, ``train``,
``biencoder``, ``device``, ``scale``, ``cost``, ``efficiency``, ``filters``, ``hops``, ``hybrid``,
``languages``, ``riches``, ``ralm`` and ``serve``. They share ``common`` (synthetic corpora, the machine,
tables); ``fitting`` and ``watching`` are parts of ``train``, ``http_clients`` of ``serve`` and ``soak``.
Studies run on a whole data set: ``compare`` (every system), ``seeds`` (one training several times, by
``recipes``), ``ablate`` (RICHES) and ``ralm_study`` (In-Context RALM). ``trainings`` lists the trainings of
the public data sets. ``manuals`` makes a data set of questions that people would ask. ``page_shots`` makes
the pictures of the server's page for the docs.
"""
