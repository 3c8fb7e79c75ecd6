"""The two stages of arXiv 2204.13596: ``data`` holds their LightningDataModules, ``callbacks`` measures
constrained recall on dev and writes the best model.
"""
