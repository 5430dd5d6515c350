"""The example for Ray on a cluster of three nodes, two of which are lost."""

import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import hf_meta
from support import ROOT, list_models, local_hub, tables

# Ray would use the address of another interface.
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
sys.path.insert(0, str(ROOT / "examples/census"))
import ray  # noqa: E402
import ray_census  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

# A quota that is enforced and never reached: a worker would use its share only of the one that the Hub names otherwise.
HUB = ["--computed", "3000", "--rtt", "20ms", "--quota", "1000000/1s"]
NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}


class LostNodes(unittest.TestCase):
    def test_the_tables_are_those_of_an_undisturbed_run(self):
        with tempfile.TemporaryDirectory() as folder, local_hub(*HUB) as endpoint:
            environment = {"HF_ENDPOINT": endpoint, "PYTHONPATH": str(ROOT / "examples/census")}
            with mock.patch.dict(os.environ, environment):
                self.check(*(os.path.join(folder, name) for name in ("repos.parquet", "whole", "disturbed")))

    def check(self, manifest, whole, disturbed):
        list_models(manifest)
        expected = hf_meta.census.read(manifest, whole).rows
        cluster = Cluster(initialize_head=True, head_node_args=NODE)
        lost = [cluster.add_node(**NODE) for _ in range(2)]
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            results = []
            arguments = manifest, disturbed, 3, {"jobs": 8}
            run = threading.Thread(target=lambda: results.append(ray_census.read(*arguments)))
            run.start()
            for number, node in enumerate(lost, 1):
                # Each node is lost while it reads, after some parts were written.
                while run.is_alive() and len(list(pathlib.Path(disturbed).glob("repos/*.parquet"))) < 2 * number:
                    time.sleep(0.05)
                cluster.remove_node(node, allow_graceful=False)
            self.assertTrue(run.is_alive())
            run.join()
        finally:
            ray.shutdown()
            cluster.shutdown()
        self.assertEqual(results, [expected])
        self.assertEqual(tables(disturbed), tables(whole))
        self.assertEqual(hf_meta.census.read(manifest, disturbed).already_read, sum(expected.values()))


if __name__ == "__main__":
    unittest.main()
