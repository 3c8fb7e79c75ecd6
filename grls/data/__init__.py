"""What is retrieved, and what is asked.

``types`` holds the plain values that cross the borders between layers. ``corpus`` is the passages,
``dataset`` queries and judgements in BEIR's layout, ``dataset_check`` the faults in them. ``codec`` turns
text into tokens (``spelling``: texts that spell a chat's markers). ``words`` splits texts into words
(``language`` guesses theirs) and ``sentences`` into sentences; ``spans`` are identifiers of n words;
``neighbours`` are passages near to each other. ``filters`` says which passages a query may find
(``filter_options``: as options), and ``where`` reads one that is written as text.
"""
