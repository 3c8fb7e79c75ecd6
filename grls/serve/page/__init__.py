"""The pages of the server. They load nothing from elsewhere.

The page at ``/`` is ``index.html`` with ``page.css`` and modules of JavaScript that need no build step.
``app.js`` begins: it holds the form and the state in the address. ``early.js`` sets the colours before
anything is drawn, ``api.js`` sends requests, ``views.js`` shows answers, ``trail.js`` draws the chain,
``beam.js`` the beam, ``passage.js`` a passage, ``answer.js`` what a language model writes, ``code.js`` a
request as code. ``dom.js`` puts texts into the page, as text. ``tree.js`` draws a tree of a beam and
``report.js`` lays out a report. ``files`` hands out these
files.
"""
