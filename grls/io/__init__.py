"""Files and terminals. Nothing here knows passages or models.

``files`` writes atomically and computes checksums. ``temporary`` makes the temporary folders for that, and
removes those of dead processes. ``locks`` lets one process at a time append to a file or train into a folder.
``jsonl`` reads and writes one JSON object a line; ``resumable`` is such a file that a killed run can resume.
``html`` is the frame of our HTML pages. ``ending`` ends a command: exit codes, signals, the one line of an
error. ``option_errors`` says what is wrong with an option. ``progress`` shows how far a loop is, ``terminal``
makes foreign text safe to print, and ``logs`` silences other libraries. ``recipes`` finds the files that
``--config`` names. ``lazy`` imports the names of a folder on first use, ``extras`` the packages that are
extras. ``parts`` counts the seconds of the parts of a search. ``counts`` writes a number with its noun.
``machine`` says which cores and memory there are, and lets the threads of numeric libraries sleep on a busy
machine; ``turns`` gives an object to one thread at a time. ``plugins`` imports modules that add kinds,
backends and measures. ``help_text`` writes the lists and paragraphs of ``--help``. ``listed`` takes a single
text of an option for a list of one.
"""
