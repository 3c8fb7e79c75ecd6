"""Work on several processes or machines: cut into shards, done by workers on Ray, gathered from a folder.

``options`` names the cluster (``--ray``) and the number of workers. ``plan`` cuts work into shards, and names
their folder and files as other machines see them. Each finished shard is a folder with a receipt, so a killed
run does only the missing shards, and nothing is gathered before all are there. ``work`` does the shards, in
this process or by the workers. ``ray_data`` opens the cluster, checks every machine before the work begins,
and runs the shards as a stage of Ray Data. Nothing here knows passages or models; all machines must see the
folder of the shards and the files that the work reads.
"""
