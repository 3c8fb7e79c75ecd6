"""Files and terminals. Nothing here knows passages or models.

``files`` reads, and writes atomically. ``seal`` tells whether a folder is as it was written. ``jsonl``
reads and writes JSON lines. ``work`` does items in order, into a file with which a killed run goes on.
``timing`` counts seconds and tokens of the parts of a search, and ``locks`` are those of shared models.
``progress`` shows how far a loop is, and makes texts safe to print. ``html`` is the frame of our HTML
pages. ``ending`` ends a command and knows the extras. ``arguments`` checks the arguments of public calls
and the fields of options by their types. ``option_errors`` words the faults of a command line and formats
``--help``. ``recipes`` finds the files of ``--config``, and imports plugins.
"""
