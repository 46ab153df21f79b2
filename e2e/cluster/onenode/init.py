"""Process 1 of the node: reaps what the container shims leave to it. When it ends, the kernel ends all of the node.

It runs as a script in a process namespace of its own, so it must not import anything of this package.
"""

import os
import signal


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        _reap()
        signal.sigwait({signal.SIGCHLD})


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main()
