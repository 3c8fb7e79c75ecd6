"""Shared parts of all trainings.

``examples`` holds the form of a training pair, and the gold chains of queries. ``datamodule``
orders examples and resumes mid-epoch. ``module`` has the bases of the LightningModules, the form of a batch,
and the losses over the vocabulary and over the tokens that the index allows; ``engine`` runs all trainings.
``checkpoints`` keeps checkpoints whole, and says what a resumed run must have in common.
``trainer`` is Lightning's, with callbacks; ``clock`` counts steps and time. ``processes`` takes means over
the examples of all processes, and divides a model among them.
"""
