"""``grls fit``: the best retriever for a data set in the time that there is, at every moment.

``options`` are what a user may choose. ``splits`` reads, checks and divides the data; ``models`` says what
the machine is and which models suit it. Where no questions are labelled, ``questions`` lets a language model
write some. ``run`` lets ``search`` do one stage after another: it says which is next and how long it may
take. ``stages`` do the work, ``training`` keeps their trainings to that time, and they make ``candidates``,
which rank dev queries; ``choose`` says which is the best so far, and the output opens as it. ``journal``
records what is done and how long it took, so that a killed run goes on; ``result`` writes the results.
``judging`` lets a person label questions, for ``grls judge``.
"""
