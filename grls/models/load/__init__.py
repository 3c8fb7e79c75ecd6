"""Loads and makes models.

``opening`` finds the files (on the hub, in a folder, in a GGUF file, in an installed package), opens configs,
tokenizers and weights, refuses incomplete models, compares the settings in a folder with those of a manifest,
and writes weights. ``base_models`` tells which models there are to begin with. ``sentence_folder`` reads
folders of sentence-transformers. ``build`` makes generators (pretrained, from scratch, or warm-started, with
options for large ones in training), ``language`` opens language models. ``kinds`` selects the adapter of a
model.
"""
