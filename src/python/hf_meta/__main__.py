"""The command: `hf-meta`, or `python -m hf_meta`."""

import signal
import sys

from hf_meta._native import run_command


def main():
    # Python would note Ctrl-C and wait until the command returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run_command(["hf-meta", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
