"""The search on the model's device.

``search`` is that of :mod:`grls.decode.beam` for a GPU. ``decision`` is what one step decides, a function of
tensors alone; ``step`` joins it with the model's forward pass, to be compiled; ``replay`` captures that as
CUDA graphs.
"""
