"""The answers of the server's addresses.

``search`` answers queries, sends hops as they are found, shows passages, lists what can be asked, says what
the beam considers and why passages are found or not, and has a language model answer.
"""
