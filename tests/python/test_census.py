"""Tables in and out: pyarrow, Polars, pandas, DuckDB, and a census of slices."""

import asyncio
import contextlib
import dataclasses
import datetime
import io
import itertools
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

import datasets
import duckdb
import hf_meta
import huggingface_hub
import pandas
import polars
import pyarrow
import pyarrow.parquet
from support import list_models, tables, use_local_hub

NAMES = ["bigscience/bloom", "org/none", "gpt2"]
# `None` is a repository that does not exist.
TOTALS = [176247271424, None, 137022720]


def setUpModule():
    use_local_hub("--computed", "1000", "--seed", "5", "--quota", "1000000/1s")


def sent_requests(repos):
    """Returns the number of requests of a census."""
    with tempfile.TemporaryDirectory() as folder:
        hf_meta.census.read(repos, folder)
        return pyarrow.parquet.read_table(os.path.join(folder, "runs"))["requests"].to_pylist()[0]


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

    def test_polars_columns_and_lazy_frames(self):
        self.check(polars.Series(NAMES))
        self.check(polars.LazyFrame({"repo": NAMES}))

    def test_pandas_columns(self):
        self.check(pandas.Series(NAMES))
        self.check(pandas.DataFrame({"id": NAMES, "likes": [1, 2, 3]})["id"])

    def test_datasets(self):
        dataset = datasets.Dataset.from_dict({"likes": [1, 2, 3, 4], "id": ["other", *NAMES]})
        self.check(dataset.select([1, 2, 3]))
        self.check(dataset.filter(lambda row: row["id"] != "other")["id"])

    def test_iterables(self):
        self.check(iter(NAMES))
        self.check({"repo": NAMES})
        self.check({"repo": name, "downloads": 1} for name in NAMES)

    def test_models_of_huggingface_hub(self):
        sibling = {"rfilename": "model.safetensors"}
        files = {"gpt2": [sibling], "bigscience/bloom": None, "org/none": None}
        infos = [huggingface_hub.ModelInfo(id=name, siblings=files[name], gated=False) for name in NAMES]
        self.check(infos)
        self.assertLess(sent_requests(infos[2:]), sent_requests(["gpt2"]))
        api = huggingface_hub.HfApi(endpoint=os.environ["HF_ENDPOINT"], token=False)
        models = list(api.list_models(filter="safetensors", expand=["sha", "siblings"], limit=50))
        rows = hf_meta.read(iter(models))
        self.assertEqual(rows["repo"].to_pylist(), [model.id for model in models])
        read = [commit for commit, status in zip(rows["commit"].to_pylist(), rows["status"].to_pylist()) if status == "ok"]
        self.assertLessEqual(set(read), {model.sha for model in models})
        self.assertGreater(len(read), 25)

    def test_batches(self):
        taken = []
        endless = (taken.append(name) or name for name in itertools.cycle(NAMES))
        batches = hf_meta.read_batches(endless, batch_size=2)
        self.assertEqual(next(batches)["repo"].to_pylist(), NAMES[:2])
        self.assertEqual(next(batches)["repo"].to_pylist(), [NAMES[2], NAMES[0]])
        self.assertEqual(len(taken), 4, "an iterator is read as far as needed")
        sizes = [batch.num_rows for batch in hf_meta.read_batches(polars.DataFrame({"repo": NAMES * 2}), batch_size=4)]
        self.assertEqual(sizes, [4, 2])

        async def collect():
            return [batch.num_rows async for batch in hf_meta.aio.read_batches(iter(NAMES), batch_size=2)]

        self.assertEqual(asyncio.run(collect()), [2, 1])

    def test_the_progress_is_reported_after_each_batch(self):
        seen = []
        self.assertEqual(len(list(hf_meta.read_batches(NAMES, batch_size=2, progress=seen.append))), 2)
        self.assertEqual(seen, [(2, 3, 0, None), (3, 3, 0, None)])
        for batch in hf_meta.read_batches(iter(["gpt2"]), endpoint="http://127.0.0.1:1", timeout=1, progress=seen.append):
            self.assertEqual(batch["status"].to_pylist(), ["failed"])
        self.assertEqual(seen[-1], (1, 0, 1, None))
        hf_meta.read(NAMES, progress=seen.append)
        self.assertEqual(seen[-1], (3, 3, 0, None))

    def test_an_outage_is_announced_and_ends_the_call(self):
        seen, names = [], [f"org/{number}" for number in range(40)]
        settings = {"endpoint": "http://127.0.0.1:1", "timeout": 1, "max_outage": 0.1}
        with self.assertWarnsRegex(RuntimeWarning, "waiting for the end of the outage"):
            with self.assertRaises(hf_meta.HfMetaError) as raised:
                hf_meta.read(names, progress=seen.append, **settings)
        self.assertEqual(raised.exception.code, seen[-1].outage)
        with self.assertRaises(ValueError):
            hf_meta.read(names, max_outage=-1)

    def test_urls_and_revisions_are_names(self):
        rows = hf_meta.read(["gpt2@main", "https://huggingface.co/bigscience/bloom"])
        self.assertEqual(rows["repo"].to_pylist(), ["gpt2", "bigscience/bloom"])
        self.assertEqual(rows["parameter_total"].to_pylist(), [TOTALS[2], TOTALS[0]])

    def test_stopped_calls_leave_files_in_place(self):
        class Interrupted(BaseException):
            pass

        def interrupt(progress):
            raise Interrupted

        with tempfile.TemporaryDirectory() as folder:
            target, packed = os.path.join(folder, "census"), os.path.join(folder, "packed")
            hf_meta.census.read(NAMES, target)
            rows = tables(target)
            for call in [hf_meta.census.count, hf_meta.census.pack, hf_meta.census.publish]:
                output = [] if call is hf_meta.census.count else [packed]
                with self.subTest(call.__name__), contextlib.suppress(Interrupted):
                    call(target, *output, progress=interrupt)
            self.assertEqual(tables(target), rows)
            self.assertFalse(os.path.exists(packed + ".part"))

    def test_an_interrupted_census_stores_its_complete_rows(self):
        class Interrupted(BaseException):
            pass

        def interrupt(progress):
            if progress.done:
                raise Interrupted

        with tempfile.TemporaryDirectory() as folder:
            manifest, target = os.path.join(folder, "list"), os.path.join(folder, "census")
            hf_meta.census.list(manifest, filter="safetensors")
            repos = pyarrow.parquet.read_table(manifest).slice(0, 250)
            with self.assertRaises(Interrupted):
                hf_meta.census.read(repos, target, jobs=1, progress=interrupt)
            stored = tables(target).num_rows
            self.assertTrue(0 < stored < 250, stored)
            self.assertEqual(hf_meta.census.read(repos, target).repos, 250)

    def test_progress_can_be_a_bar_of_tqdm(self):
        with contextlib.redirect_stderr(io.StringIO()) as shown, tempfile.TemporaryDirectory() as folder:
            hf_meta.census.read(["gpt2", "bigscience/bloom"], folder, progress=True)
        self.assertIn("2/2", shown.getvalue())

    def test_an_empty_table(self):
        for repos in [[], pyarrow.table({"repo": pyarrow.array([], pyarrow.string())})]:
            rows = hf_meta.read(repos)
            self.assertEqual(rows.num_rows, 0)
            self.assertIn("parameter_total", rows.schema.names)

    def test_columns_of_a_list_save_requests(self):
        listed = {"repo": ["gpt2"], "files": [["config.json", "model.safetensors"]]}
        self.assertLess(sent_requests(pyarrow.table(listed)), sent_requests(["gpt2"]))

    def test_wrong_settings_are_errors(self):
        for settings in [{"jobs": -1}, {"jobs": 0}, {"quota_share": 0}]:
            with self.subTest(settings), self.assertRaises(ValueError):
                hf_meta.read(NAMES, **settings)
        with self.assertRaisesRegex(TypeError, "`quota_share` must be a number"):
            hf_meta.read(NAMES, quota_share=None)
        with self.assertRaises(ValueError):
            next(hf_meta.read_batches(iter(NAMES), batch_size=0))
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(ValueError):
            listed = os.path.join(folder, "list")
            with open(listed, "wb") as file:
                file.write(b"PAR1garbage")
            hf_meta.census.read(listed, os.path.join(folder, "census"))

    def test_wrong_tables_are_errors(self):
        for repos in [{"name": NAMES}, {"repo": [1, 2, 3]}]:
            with self.subTest(repos), self.assertRaises(ValueError):
                hf_meta.read(pyarrow.table(repos))
        for repos in ["gpt2", [1, 2], 3]:
            with self.subTest(repos), self.assertRaises(TypeError):
                hf_meta.read(repos)

    def test_the_function_can_be_sent_to_workers(self):
        self.assertIs(pickle.loads(pickle.dumps(hf_meta.read)), hf_meta.read)


class Census(unittest.TestCase):
    def test_slices_are_the_census_of_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            manifest, slices, whole = (os.path.join(folder, name) for name in ("repos.parquet", "slices", "whole"))
            command = [sys.executable, "-m", "hf_meta", "census"]
            list_models(manifest)
            subprocess.run([*command, "read", manifest, "-o", whole], capture_output=True)
            results = [hf_meta.census.read(manifest, slices, slice=(k, 3), quota_share=0.5) for k in range(3)]
            self.assertEqual(tables(slices), tables(whole))
            again = hf_meta.census.read(manifest, slices)
        rows = sum(result.repos for result in results)
        self.assertEqual((again.already_read, again.repos), (rows, rows))
        self.assertGreater(rows, 950)

    def test_the_functions_are_the_subcommands(self):
        with tempfile.TemporaryDirectory() as folder:
            names = "list", "census", "packed", "changed", "recent"
            manifest, whole, packed, changed, recent = (os.path.join(folder, name) for name in names)
            seen = []
            def fail(progress):
                raise KeyError("from the callback")

            with self.assertRaises(KeyError):
                hf_meta.census.list(manifest, filter="safetensors", progress=fail)
            listed = hf_meta.census.list(manifest, filter="safetensors", progress=seen.append)
            self.assertEqual(seen[-1].done, listed)
            self.assertEqual(pyarrow.parquet.read_metadata(manifest).num_rows, listed)
            repos = pyarrow.parquet.read_table(manifest).slice(0, 300)
            read = hf_meta.census.read(repos, whole, progress=seen.append)
            self.assertEqual((read.repos, seen[-1][:2]), (300, (300, 300)))
            self.assertEqual(hf_meta.census.read(polars.DataFrame(repos), whole).already_read, 300)
            self.assertEqual(hf_meta.census.pack(whole, packed), 300)
            rows = pyarrow.parquet.read_table(packed)
            self.assertEqual(rows["repo"].to_pylist(), sorted(repos["repo"].to_pylist()))
            self.assertEqual(hf_meta.census.count(whole), dataclasses.replace(read, carried_over=0))
            self.assertEqual(hf_meta.census.retry(whole).rows, read.rows)
            self.assertEqual(hf_meta.census.diff(whole, packed), [])
            self.assertEqual(hf_meta.census.verify(packed, sample=20, seed=1), [])
            published = os.path.join(folder, "published")
            self.assertEqual(hf_meta.census.publish(whole, published, license="cc0-1.0", tensors=True), 300)
            self.assertIn("tensors.parquet", os.listdir(published))
            few = [name for name in repos["repo"].to_pylist()[1:]] + ["org/none"]
            hf_meta.census.read(iter(few), changed)
            changes = hf_meta.census.diff(whole, changed)
            kinds = {(change.change, change.repo) for change in changes if change.change != "changed"}
            self.assertEqual(kinds, {("removed", repos["repo"][0].as_py()), ("added", "org/none")})
            self.assertEqual(asyncio.run(hf_meta.aio.census.diff(whole, changed)), changes)
            now = datetime.datetime.now() + datetime.timedelta(hours=2)
            for since, expected in [(datetime.date(1990, 1, 1), listed), (now, 0)]:
                self.assertEqual(hf_meta.census.list(recent, filter="safetensors", since=since), expected)
            self.assertEqual(hf_meta.census.list(recent, filter="safetensors", since=manifest), listed)

    def test_wrong_arguments_are_errors(self):
        with self.assertRaises(ValueError):
            hf_meta.census.read("repos.parquet", "target", slice=(3, 3))
        with self.assertRaises(FileNotFoundError):
            hf_meta.census.read("/nonexistent/repos.parquet", "target")
        with self.assertRaises(ValueError), tempfile.TemporaryDirectory() as folder:
            hf_meta.census.read(["gpt2"], folder)
            hf_meta.census.read(["bigscience/bloom"], folder)


if __name__ == "__main__":
    unittest.main()
