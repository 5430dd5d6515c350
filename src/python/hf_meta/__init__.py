"""The command `hf-meta`, installed with this package.

`python -m hf_meta` runs it, and `hf_meta.find_binary()` returns its path.
"""

import os
import sysconfig

__all__ = ["find_binary"]


def find_binary():
    """Returns the path of the command.

    Raises FileNotFoundError if it was not installed with this package.
    """
    name = "hf-meta" + (sysconfig.get_config_var("EXE") or "")
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = [
        sysconfig.get_path("scripts"),
        # `pip install --user`
        sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")),
        # `pip install --target FOLDER`
        os.path.join(here, "bin"),
    ]
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"`{name}` is in none of {', '.join(folders)}")
