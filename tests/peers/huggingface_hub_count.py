"""Counts the repositories that stdin names, as `huggingface_hub` does: one line of JSON for each."""

import json
import sys

from huggingface_hub import HfApi
from huggingface_hub.utils import disable_progress_bars

disable_progress_bars()
for repo in sys.stdin.read().split():
    answer = {"repo": repo}
    try:
        answer["count"] = HfApi().get_safetensors_metadata(repo).parameter_count
    except Exception as error:  # Whatever it is, it is the answer of this client.
        answer["error"] = repr(error)
    print(json.dumps(answer), flush=True)
