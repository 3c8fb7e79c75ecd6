"""Files and terminals; nothing here knows passages or models.

``files`` writes atomically and compares checksums; ``temporary`` holds the places that this needs beside a
destination, and clears those of dead processes; ``locks`` lets one process at a time append. ``jsonl`` is one
JSON object a line, ``resumable`` such a file that a killed run goes on with. ``html`` is the frame of our
pages. ``ending`` is how a command ends: exit codes, signals, its one line. ``progress`` shows how far a
loop is, ``terminal`` makes foreign text safe to print, and ``logs`` keeps other libraries quiet. ``lazy``
imports the names of a folder when they are asked for.
"""
