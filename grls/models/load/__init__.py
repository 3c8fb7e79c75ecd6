"""Loads and makes models.

``opening`` finds the files, opens configs, tokenizers and weights, refuses incomplete models, and writes
weights. ``build`` opens writers, and ``generators`` are the models that a training can start from
(pretrained, from scratch, or warm-started). ``language`` opens language models, ``kinds`` selects the
adapter of a model. ``base_models`` tells which models there are to begin with. ``sentence_folder`` reads
folders of sentence-transformers.
"""
