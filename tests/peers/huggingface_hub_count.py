"""Counts the repositories on stdin, some with a path, with `huggingface_hub`. Prints one line of JSON for each.
An index under another name cannot be read with it."""

import json
import sys

from huggingface_hub import HfApi
from huggingface_hub.utils import disable_progress_bars

disable_progress_bars()
api = HfApi()
for line in sys.stdin.read().splitlines():
    repo, path = line.split(" ")
    is_file = path and not path.endswith(".index.json")
    answer = {"repo": repo}
    try:
        found = api.parse_safetensors_file_metadata(repo, path) if is_file else api.get_safetensors_metadata(repo)
        answer["count"] = found.parameter_count
    except Exception as error:  # Any error is the answer of this client.
        answer["error"] = repr(error)
    print(json.dumps(answer), flush=True)
