"""The commands of ``grls``: one module a command, one function of the same name in it.

The arguments of the function are the options, its docstring is the ``--help``. ``grls.cli`` imports a module
only when its command is called, so that a command which needs no model does not wait for torch. ``output``
is what the commands that retrieve share: they write a run as TREC, as JSONL and with a manifest.
"""
