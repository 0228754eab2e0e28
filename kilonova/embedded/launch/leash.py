"""Run a program that dies with its parent: `python -I -S leash.py PARENT_PID PROGRAM [ARGUMENT...]`.

Linux kills the process when the thread that started it ends, even when that end is SIGKILL; the wish survives exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, make sure that the parent has not gone meanwhile, become the program."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit("the parent has gone")
    os.execv(command[0], command)  # noqa: S606 - its own arguments, no shell


main()
