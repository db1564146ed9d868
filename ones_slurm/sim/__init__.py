"""An imagined cluster: virtual time, jobs whose true behaviour only this room knows, traces and faults.

`ImaginedCluster` is the `Cluster` socket, so the loop, the policies and the guard that run live are the ones simulated.
"""
