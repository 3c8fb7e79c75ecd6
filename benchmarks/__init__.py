"""What is measured, and with what.

Ratios against named rivals, each measured in the run that prints it: ``index``, ``decode``, ``train``,
``device``, ``scale``, ``cost``, ``efficiency``, ``filters``, ``hybrid``, ``riches`` and ``ralm``; they share
``common`` (synthetic corpora, the machine, tables), and ``train`` has ``fitting`` and ``watching`` to itself.
Whole studies on a data set: ``compare`` (every system), ``seeds`` (one training several times, by
``recipes``), ``ablate`` (RICHES) and ``ralm_study`` (In-Context RALM).
"""
