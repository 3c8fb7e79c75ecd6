"""The search on the device of the model.

``search`` is the search of :mod:`grls.decode.beam` for a GPU. ``decision`` makes the decisions of one step,
as a function of tensors only; ``search`` joins it with the forward pass of the model, so that both can be
compiled, and captures it as CUDA graphs.
"""
