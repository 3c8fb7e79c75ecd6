"""``grls fit``: the best retriever for a data set in the time that there is, at every moment.

``options`` are what a user may choose. ``splits`` reads, checks and divides the data, with queries of
``pseudo`` where there are none; ``facts`` describes them, ``machine`` the machine, ``models`` the models to
begin with. ``run`` then lets ``search`` do one stage after another: it says which is next and whether there
is time for it. ``stages`` do the work and make ``candidates``, which rank dev queries; ``choose`` says which
is the best so far, and the output opens as it. ``journal`` keeps what is done and the time that it took, so
that a killed run goes on; ``progress`` shows it; ``result`` writes what came of it.
"""
