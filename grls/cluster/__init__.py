"""Work on several processes or machines: cut into shards, done by workers on Ray, gathered from a folder.

``options`` names the cluster (``--ray``) and the number of workers. ``plan`` cuts work into shards: folders
with a receipt, so a killed run does only the missing ones. ``workers`` does the shards, here or on a cluster,
which it opens and checks. All machines must see the folder of the shards and the files that the work reads.
"""
