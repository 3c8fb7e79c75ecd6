"""Files and terminals. Nothing here knows passages or models.

``files`` writes atomically, computes checksums, and makes the temporary folders for that (those of dead
processes are removed); it counts the seconds of the parts of a search, and gives an object to one thread at
a time. ``resumable`` reads and writes one JSON object a line, in a file that a killed run can resume and
that one process at a time writes. ``html`` is the frame of our HTML pages. ``ending`` ends a command (exit
codes, signals, the one line of an error), silences other libraries, and imports the packages that are
extras. ``option_errors`` says what is wrong with an option, writes the lists and paragraphs of ``--help``,
and makes foreign text safe to print. ``progress`` shows how far a loop is, writes a number with its noun,
says which cores and memory there are, and lets the threads of numeric libraries sleep on a busy machine.
``recipes`` finds the files that ``--config`` names, imports modules that add kinds, backends and measures,
and the names of a folder on first use; it takes a single text of an option for a list of one.
"""
