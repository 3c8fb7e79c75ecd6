"""Files and terminals. Nothing here knows passages or models.

``files`` writes atomically, times the parts of a search, and locks shared objects. ``resumable`` reads and
writes JSONL that a killed run resumes. ``html`` is the frame of our HTML pages. ``ending`` ends a command
and knows the extras. ``option_errors`` words the faults of options and formats ``--help``. ``progress``
shows how far a loop is. ``recipes`` finds the files of ``--config``, and imports plugins.
"""
