"""Measures how a census on Ray becomes faster with a second worker, at a round trip of 50 ms and without a quota to wait for.

    LOCAL_HUB=target/debug/examples/local_hub python benches/census/ray_scaling.py [REPOSITORIES: 1024]

Each worker reads few repositories at once, so the latency limits it and not the cores, which the Hub needs, too. Fails if
two workers are less than 1.8 times as fast as one.
"""

import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "examples/census")]
os.environ.update(
    PYTHONPATH=str(ROOT / "examples/census"), RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0"
)

import ray  # noqa: E402
import ray_census  # noqa: E402
from support import local_hub  # noqa: E402

SETTINGS = {"jobs": 4}


def measure(names, folder, workers):
    """Returns the seconds of a census."""
    begun = time.perf_counter()
    rows = ray_census.read(names, os.path.join(folder, str(workers)), workers, SETTINGS)
    seconds = time.perf_counter() - begun
    print(f"{workers} workers: {seconds:.1f} s, {rows.total() / seconds:.1f} repositories/s", flush=True)
    return seconds


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    hub = local_hub("--computed", str(count), "--rtt", "50ms", "--quota", "1000000/1s")
    with tempfile.TemporaryDirectory() as folder, hub as endpoint:
        os.environ["HF_ENDPOINT"] = endpoint
        names = pathlib.Path(folder, "names.txt")
        names.write_text("".join(f"org{index % 97}/model-{index}\n" for index in range(count)))
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        # The first tasks wait for the start of their workers.
        warm = pathlib.Path(folder, "warm.txt")
        warm.write_text("org0/model-0\n")
        ray_census.read(warm, os.path.join(folder, "warm"), 2, SETTINGS)
        ratio = measure(names, folder, 1) / measure(names, folder, 2)
    print(f"{ratio:.2f} times as fast")
    sys.exit(0 if ratio >= 1.8 else 1)


if __name__ == "__main__":
    main()
