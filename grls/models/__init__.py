"""The model side of decoding.

``base`` is the protocol the decoder drives (encode a batch, then step its beams); ``generator`` fulfils
it for any transformers sequence-to-sequence model; ``head`` computes logits for the allowed tokens only.
``build`` makes models and tokenizers: from a hub or folder, from scratch, or warm-started from a sentence
encoder; ``sources`` says where the files of a model are. Nothing here knows what an index is.
"""
