"""The `hf-meta` command, also available as `python -m hf_meta`."""

import signal
import sys

from hf_meta._native import run_command


def main() -> None:
    # By default, Python handles Ctrl-C only after the command has returned.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run_command(["hf-meta", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
