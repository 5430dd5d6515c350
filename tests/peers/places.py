"""Lists the file of each repository that the clients have to read: places.py LIST OURS.

Prints each repository of the list, followed by the path of its weights if the clients would not find them by
themselves. Shards without an index have no such path.
"""

import json
import sys
from pathlib import Path

places = {}
for line in Path(sys.argv[2]).read_text().splitlines():
    ours = json.loads(line)
    path = ours["filepaths"][0]
    is_whole = path.endswith(".index.json") or not ours["sharded"]
    if is_whole and path not in ("model.safetensors", "model.safetensors.index.json"):
        places[ours["source"]] = path
for repo in Path(sys.argv[1]).read_text().split():
    print(repo, places.get(repo, ""))
