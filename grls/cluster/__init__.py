"""Work on several processes or machines: cut into shards, done by workers on Ray, gathered from a folder.

``options`` names the cluster (``--ray``) and the number of workers. ``plan`` cuts work into shards: folders
with a receipt, so a killed run does only the missing ones. ``shards`` does them, here or by ``workers`` on a
cluster, which is opened and checked. All machines must see the folder of the shards and the files that the
work reads.
"""
