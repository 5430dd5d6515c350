"""Runs the command: `python -m hf_meta`."""

import os
import subprocess
import sys

from hf_meta import find_binary

if __name__ == "__main__":
    command = [find_binary(), *sys.argv[1:]]
    if sys.platform == "win32":
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)
