"""The answers of the server's addresses.

``search`` answers queries, sends hops as they are found, shows passages and retrievers, shows the beam,
explains why passages are found or not, and lets a language model answer.
"""
