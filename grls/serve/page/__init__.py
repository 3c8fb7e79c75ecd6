"""The pages of the server. They load nothing from elsewhere.

The page at ``/`` asks the server and shows what it answers: ``index.html`` with ``page.css``, and modules of
JavaScript that need no build step. ``app.js`` begins: it holds the form and the state in the address;
``early.js`` sets the colours before anything is drawn. ``api.js`` sends requests and reads streams,
``views.js`` shows answers, ``trail.js`` draws the chain, ``beam.js`` the beam (``tree.js`` its tree, also
for ``grls explain``), ``passage.js`` a passage, ``answer.js`` what a language model writes, and ``code.js``
writes a request as code. ``dom.js`` makes elements: texts get into the page there, as text. ``files`` hands
out these files.

The page at ``/docs``, which lists the addresses, is made in ``files`` as well, with the one place that
escapes.
"""
