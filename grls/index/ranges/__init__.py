"""An index in several prefix ranges: each part holds consecutive rows, and one beam searches all parts.

``ranged`` cuts an index into parts, opens them again, in this process, in others, or on other machines, and
is the index of all parts: the tokens that may follow a prefix are the union over the parts, and passages
are counted across them, so a search finds what it finds in the whole index.
"""
