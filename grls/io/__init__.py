"""Files and terminals. Nothing here knows passages or models.

``files`` writes atomically, computes checksums, and makes temporary folders; it counts the seconds of the
parts of a search, and gives an object to one thread at a time. ``resumable`` reads and writes one JSON object
a line, in a file that a killed run resumes and that one process at a time writes. ``html`` is the frame of
our HTML pages. ``ending`` ends a command (exit codes, signals, the one line of an error), silences other
libraries, and knows the extras. ``option_errors`` words the faults of options, formats ``--help``, and makes
foreign text safe to print. ``progress`` shows how far a loop is, writes numbers with their nouns, and knows
cores and memory. ``recipes`` finds the files that ``--config`` names, and imports plugins, and names on first
use.
"""
