"""The errors of the cluster tools.

ClusterError            what `cluster.py` reports in one line, with exit status 1
├── CommandFailed       a command ended with an error
└── NotReady            something that was started did not become ready, or died
"""


class ClusterError(Exception):
    pass


class CommandFailed(ClusterError):
    pass


class NotReady(ClusterError):
    pass
