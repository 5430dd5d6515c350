"""The example for Slurm, with the variables that Slurm sets."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import ROOT, list_models, local_hub, tables


class Slurm(unittest.TestCase):
    def test_the_tasks_of_an_array_make_one_census(self):
        with tempfile.TemporaryDirectory() as folder, local_hub("--computed", "1000", "--quota", "1000000/1s") as endpoint:
            manifest, array, whole = (os.path.join(folder, name) for name in ("repos.parquet", "array", "whole"))
            path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
            environment = {**os.environ, "PATH": path, "HF_ENDPOINT": endpoint, "SLURM_ARRAY_TASK_COUNT": "3"}
            os.environ["HF_ENDPOINT"] = endpoint
            list_models(manifest)
            for task in range(3):
                command = ["bash", ROOT / "examples/census/slurm.sh", manifest, array]
                task = {**environment, "SLURM_ARRAY_TASK_ID": str(task)}
                subprocess.run(command, env=task, check=True, capture_output=True)
            command = ["hf-meta", "census", "read", manifest, "-o", whole]
            subprocess.run(command, env=environment, check=True, capture_output=True)
            self.assertEqual(tables(array), tables(whole))


if __name__ == "__main__":
    unittest.main()
