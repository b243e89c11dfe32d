"""The cluster in one deterministic world: real Pumps, publishers and readers, several of each, in one
process, in virtual time. What they stand on is simulated: threads, files, index, network, etcd.

    python -m tests.sim --seeds 100            one world a seed; the first that breaks a promise is told
    python -m tests.sim --seed 7 --trace       what happened in it, line by line
"""
