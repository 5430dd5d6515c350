"""Reads a census with the workers of a Ray cluster: `pip install ray`, hf_meta on every node, and

    hf-meta census list --filter safetensors -o repos.parquet
    python ray_census.py repos.parquet s3://bucket/census --workers 16 --address auto

Without --address, the workers are processes on this machine. The target is an object store, or a folder that all nodes
share. Each worker gets its share of the Hub's quota. Slices of lost nodes run again, and parts that exist are not read
again, so the same command also continues a census that was interrupted.
"""

import argparse
import collections
import os
import pathlib
import sys
import tempfile
import time

import hf_meta
import ray

# More slices than workers: the last ones to finish leave little idle, and a lost node loses little.
SLICES_PER_WORKER = 4


@ray.remote(num_cpus=1, max_retries=10, retry_exceptions=[hf_meta.HfMetaError, OSError], scheduling_strategy="SPREAD")
def read_slice(manifest, target, slice, settings):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "repos.parquet")
        path.write_bytes(manifest)
        return hf_meta.census.read(path, target, slice=slice, **settings)


def read(manifest, target, workers, settings, quota_share=1.0):
    """Reads all slices, as many at once as there are workers. Returns the number of rows by status and error kind."""
    manifest, rows, begun = ray.put(pathlib.Path(manifest).read_bytes()), collections.Counter(), time.monotonic()
    settings = {**settings, "quota_share": quota_share / workers}
    slices = workers * SLICES_PER_WORKER
    waiting = iter(range(slices))
    running = {start(manifest, target, k, slices, settings) for _, k in zip(range(workers), waiting)}
    finished = 0
    while running:
        done, _ = ray.wait(list(running))
        running.difference_update(done)
        running.update(start(manifest, target, k, slices, settings) for _, k in zip(done, waiting))
        for result in ray.get(done):
            rows.update(result.rows)
        finished += len(done)
        passed = time.monotonic() - begun
        left = passed / finished * (slices - finished)
        print(f"{finished}/{slices} slices, {rows.total()} repositories, {left:.0f} s left", file=sys.stderr)
    return rows


def start(manifest, target, k, slices, settings):
    return read_slice.remote(manifest, target, (k, slices), settings)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", help="list of repositories: a file by `hf-meta census list`, or one name per line")
    parser.add_argument("target", help="folder or URL of the census")
    parser.add_argument("--workers", type=int, default=2, help="number of slices that are read at once")
    parser.add_argument("--jobs", type=int, default=32, help="number of repositories that a worker reads at once")
    parser.add_argument("--quota-share", type=float, default=1.0, help="part of the Hub's quota for all workers together")
    parser.add_argument("--address", help="address of a Ray cluster, or `auto`")
    args = parser.parse_args()
    environment = {name: os.environ[name] for name in ("HF_ENDPOINT", "HF_TOKEN") if name in os.environ}
    ray.init(address=args.address or "local", log_to_driver=False, runtime_env={"env_vars": environment})
    rows = read(args.manifest, args.target, args.workers, {"jobs": args.jobs}, args.quota_share)
    for (status, kind), number in sorted(rows.items()):
        print(f"{number:>9}  {status} {kind}".rstrip())
    sys.exit(3 if any(status == "failed" for status, _ in rows) else 0)


if __name__ == "__main__":
    main()
