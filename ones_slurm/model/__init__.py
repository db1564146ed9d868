"""The nouns: jobs, nodes, a cluster view, a plan and its actions, and the messages between a job and the daemon.

Frozen structs with units in their names; nothing in here reads a clock, a socket or another room of ours.
"""
