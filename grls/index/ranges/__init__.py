"""An index in several prefix ranges: each part holds consecutive rows, and one beam searches all parts.

``cut`` cuts an index into parts and opens them again. ``ranged`` is the index of all parts: the tokens that
may follow a prefix are the union over the parts, and passages are counted across them, so a search finds what
it finds in the whole index. ``parts`` are the parts in this process, ``remote`` those in other processes,
``on_ray`` those on other machines.
"""
