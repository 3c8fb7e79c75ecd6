"""The model side of decoding.

``base`` is the protocol the decoder drives (encode a batch, then step its beams); ``generator`` fulfils
it for any transformers sequence-to-sequence model; ``head`` computes logits for the allowed tokens only.
``build`` makes models and tokenizers: from a hub or folder, from scratch, or warm-started from a sentence
encoder; ``sources`` says where the files of a model are. A bi-encoder (``biencoder``) reads texts with a
network that ``sentence_model`` opens, and whose folder ``sentence_folder`` checks. ``encoder_input`` makes
the input of encoders: a text holds no special token, however it is spelled. Nothing here knows what an index
is.
"""
