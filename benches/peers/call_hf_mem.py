"""Makes one call of hf-mem, and prints its time as JSON."""

import json
import os
import sys
import time

import hf_mem
import httpx2


class Client(httpx2.AsyncClient):
    """Sends requests for huggingface.co, the only Hub that hf-mem knows, to the local one."""

    def build_request(self, method, url, **options):
        url = str(url).replace("https://huggingface.co", os.environ["HF_ENDPOINT"], 1)
        return super().build_request(method, url, **options)


httpx2.AsyncClient = Client
started = time.perf_counter()
result = hf_mem.run(sys.argv[1])
seconds = time.perf_counter() - started
print(json.dumps({"seconds": seconds, "memory": str(result.memory)}))
