"""The kinds of identifiers, one file each; what all have in common is in :mod:`grls.data.identifiers`.

``spans`` are pieces of a passage, from any word on; ``field`` its title, or a field of its metadata;
``keywords`` its rarest words; ``queries`` pseudo-queries that it answers; ``codes`` are made of the vector
that a bi-encoder gives it; ``union`` joins several kinds.
"""
