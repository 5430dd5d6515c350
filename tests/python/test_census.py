"""Tables in and out: pyarrow, Polars, pandas, DuckDB, and a census of slices."""

import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import duckdb
import hf_meta
import pandas
import polars
import pyarrow
from support import list_models, local_hub, tables

NAMES = ["bigscience/bloom", "org/none", "gpt2"]
# `None` is a repository that does not exist.
TOTALS = [176247271424, None, 137022720]


def setUpModule():
    endpoint = unittest.enterModuleContext(local_hub("--computed", "1000", "--seed", "5", "--quota", "1000000/1s"))
    environment = {"HF_ENDPOINT": endpoint, "HF_META_CACHE": "off", "HF_HUB_CACHE": "/nonexistent"}
    unittest.enterModuleContext(mock.patch.dict(os.environ, environment))


class Tables(unittest.TestCase):
    def check(self, repos):
        rows = hf_meta.read(repos)
        self.assertIsInstance(rows, pyarrow.RecordBatch)
        self.assertEqual(rows["repo"].to_pylist(), NAMES)
        self.assertEqual(rows["parameter_total"].to_pylist(), TOTALS)
        self.assertEqual(rows["error_kind"].to_pylist(), [None, "repoNotFound", None])
        return rows

    def test_a_list_of_names(self):
        self.check(NAMES)

    def test_pyarrow(self):
        self.check(pyarrow.record_batch({"repo": NAMES}))
        self.check(pyarrow.table({"other": [1, 2, 3], "id": NAMES}))
        chunks = pyarrow.chunked_array([NAMES[:1], [], NAMES[1:]])
        self.check(pyarrow.table({"repo": chunks}))
        self.check(pyarrow.table({"repo": chunks}).to_reader())

    def test_polars(self):
        self.check(polars.DataFrame({"modelId": NAMES}))
        rows = polars.DataFrame(self.check(NAMES))
        self.assertEqual(rows["parameter_total"].sum(), sum(filter(None, TOTALS)))

    def test_pandas(self):
        self.check(pandas.DataFrame({"repo": NAMES}))
        rows = self.check(NAMES).to_pandas()
        self.assertEqual(rows.set_index("repo").loc["gpt2", "tensors"], 160)

    def test_duckdb(self):
        self.check(duckdb.sql(f"SELECT unnest({NAMES}) AS repo"))
        rows = pyarrow.table(self.check(NAMES))
        dtypes = duckdb.sql("SELECT repo, unnest(dtypes).dtype FROM rows ORDER BY ALL")
        self.assertEqual(dtypes.fetchall(), [("bigscience/bloom", "BF16"), ("gpt2", "F32")])

    def test_an_empty_table(self):
        for repos in [[], pyarrow.table({"repo": pyarrow.array([], pyarrow.string())})]:
            rows = hf_meta.read(repos)
            self.assertEqual(rows.num_rows, 0)
            self.assertIn("parameter_total", rows.schema.names)

    def test_columns_of_a_list_save_requests(self):
        listed = {"repo": ["gpt2"], "files": [["config.json", "model.safetensors"]]}
        requests = [hf_meta.read(repos)["requests"][0].as_py() for repos in (["gpt2"], pyarrow.table(listed))]
        self.assertLess(requests[1], requests[0])

    def test_wrong_tables_are_errors(self):
        for repos in [{"name": NAMES}, {"repo": [1, 2, 3]}]:
            with self.subTest(repos), self.assertRaises(ValueError):
                hf_meta.read(pyarrow.table(repos))

    def test_the_function_can_be_sent_to_workers(self):
        self.assertIs(pickle.loads(pickle.dumps(hf_meta.read)), hf_meta.read)


class Census(unittest.TestCase):
    def test_slices_are_the_census_of_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            manifest, slices, whole = (os.path.join(folder, name) for name in ("repos.parquet", "slices", "whole"))
            command = [sys.executable, "-m", "hf_meta", "census"]
            list_models(manifest)
            subprocess.run([*command, "read", manifest, "-o", whole], capture_output=True)
            results = [hf_meta.census(manifest, slices, slice=(k, 3), quota_share=0.5) for k in range(3)]
            self.assertEqual(tables(slices), tables(whole))
            again = hf_meta.census(manifest, slices)
        rows = sum(sum(result["rows"].values()) for result in results)
        self.assertEqual((again["existing"], sum(again["rows"].values())), (rows, rows))
        self.assertGreater(rows, 950)

    def test_wrong_arguments_are_errors(self):
        with self.assertRaises(ValueError):
            hf_meta.census("repos.parquet", "target", slice=(3, 3))
        with self.assertRaises(RuntimeError):
            hf_meta.census("/nonexistent/repos.parquet", "target")


if __name__ == "__main__":
    unittest.main()
