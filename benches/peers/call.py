"""Makes one call of huggingface_hub, and prints its time as JSON."""

import json
import sys
import time

from huggingface_hub import HfApi

read = getattr(HfApi(), sys.argv[1])
started = time.perf_counter()
metadata = read(sys.argv[2])
seconds = time.perf_counter() - started
print(json.dumps({"seconds": seconds, "parameters": sum(metadata.parameter_count.values())}))
