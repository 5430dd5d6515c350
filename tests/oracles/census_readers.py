#!/usr/bin/env python3
"""Reads the tables of a census with DuckDB, pandas, Polars and datasets, from a folder and from an object store.

    tests/oracles/census_readers.py HF_META LOCAL_HUB [--update]

HF_META and LOCAL_HUB are the programs. Needs the packages duckdb, pandas, polars, pyarrow, datasets and moto[server].
The queries of src/docs/census.md must print what the page shows; --update writes it.
"""

import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "src" / "docs" / "census.md"
QUERY = re.compile(r"```sql\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


def main():
    hf_meta, local_hub = (str(pathlib.Path(program).resolve()) for program in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        hub = subprocess.Popen([local_hub, ROOT / "fixtures"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            name, endpoint = hub.stdout.readline().strip().split("=", 1)
            environment = {**os.environ, name: endpoint, "HF_TOKEN": "", "HF_HOME": folder}

            def census(*arguments):
                subprocess.run([hf_meta, "-q", "census", *arguments], check=True, env=environment, stdout=subprocess.DEVNULL)

            census("list", "-o", "repos.parquet")
            census("read", "repos.parquet", "-o", "census")
            census("pack", "census", "-o", "models.parquet")
            rows = check_readers()
            check_queries("--update" in sys.argv)
            census("publish", "census", "-o", "published", "--tensors", "--license", "cc0-1.0")
            check_publication()
            check_object_store(census, environment, rows)
        finally:
            hub.terminate()
            hub.wait()


def check_readers():
    """Compares the readers with each other. Returns the number of rows of each table."""
    import datasets
    import duckdb
    import pandas
    import polars

    datasets.disable_progress_bars()
    counts = {}
    for table in ["repos.parquet", "models.parquet", "census/repos/*.parquet", "census/files/*.parquet"]:
        files = sorted(map(str, pathlib.Path().glob(table)))
        frame = pandas.concat(map(pandas.read_parquet, files))
        loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir="datasets")
        found = {
            "duckdb": duckdb.sql(f"SELECT * FROM '{table}'").df(),
            "polars": polars.scan_parquet(files).collect().rows(),
            "pandas": frame,
            "datasets": loaded,
        }
        lengths = {name: len(rows) for name, rows in found.items()}
        assert len(set(lengths.values())) == 1 and lengths["duckdb"] > 0, (table, lengths)
        counts[table] = lengths["duckdb"]
        repos = sorted(frame["repo"])
        assert repos == sorted(loaded["repo"]) == sorted(polars.read_parquet(files)["repo"]), table
        if "parameter_total" in frame:
            total = int(frame["parameter_total"].fillna(0).sum())
            assert total == sum(value or 0 for value in loaded["parameter_total"])
            assert total == polars.read_parquet(files)["parameter_total"].sum()
    print("duckdb, pandas, polars and datasets agree:", counts)
    return counts


def check_publication():
    """Compares the readers of a published data set."""
    import datasets
    import duckdb
    import polars
    import pyarrow.parquet

    counts = {}
    for table in ["repos", "files", "runs", "tensors"]:
        file = f"published/{table}.parquet"
        loaded = datasets.load_dataset("published", table, split="train", cache_dir="datasets")
        lengths = {
            "datasets": len(loaded),
            "duckdb": duckdb.sql(f"SELECT count(*) FROM '{file}'").fetchall()[0][0],
            "polars": polars.read_parquet(file).height,
            "pyarrow": pyarrow.parquet.read_table(file).num_rows,
        }
        assert len(set(lengths.values())) == 1 and lengths["duckdb"] > 0, (table, lengths)
        counts[table] = lengths["duckdb"]
    loaded = datasets.load_dataset("published", split="train", cache_dir="datasets")
    assert loaded["repo"] == sorted(loaded["repo"]) and len(loaded) == counts["repos"]
    tensors = """SELECT count(*) FROM (SELECT repo, count(*) AS found FROM 'published/tensors.parquet' GROUP BY repo)
        JOIN 'published/repos.parquet' USING (repo) WHERE status = 'ok' AND format != 'pytorch' AND found != tensors"""
    print("repositories whose tensors differ:", duckdb.sql(tensors).fetchall()[0][0])
    print("duckdb, polars, pyarrow and datasets agree:", counts)


def check_queries(update):
    import duckdb

    text = PAGE.read_text()

    def answer(match):
        result = duckdb.sql(match[1])
        rows = [[f"[{'; '.join(cell)}]" if isinstance(cell, list) else str(cell) for cell in row] for row in result.fetchall()]
        printed = "\n".join(map(",".join, [result.columns, *rows]))
        if not update:
            assert match[2] is not None and match[2].strip() == printed, f"{match[1]}\n{printed}"
        return f"```sql\n{match[1]}```\n\n```text\n{printed}\n```\n"

    answered, queries = QUERY.subn(answer, text)
    assert queries >= 3, queries
    if update:
        PAGE.write_text(answered)
    print(f"{queries} queries print what the page shows")


def check_object_store(census, environment, rows):
    """Writes a census to a server of S3 and reads it back."""
    import boto3
    import pyarrow.fs
    import pyarrow.parquet
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        url = f"http://{host}:{port}"
        environment.update(
            AWS_ACCESS_KEY_ID="test",
            AWS_SECRET_ACCESS_KEY="test",
            AWS_REGION="us-east-1",
            AWS_ENDPOINT=url,
            AWS_ALLOW_HTTP="true",
        )
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="bucket")
        for _ in range(2):
            started = time.monotonic()
            census("read", "repos.parquet", "-o", "s3://bucket/census")
            print(f"s3://bucket/census in {time.monotonic() - started:.1f} s")
        census("count", "s3://bucket/census")
        census("pack", "s3://bucket/census", "-o", "from-s3.parquet")
        store = pyarrow.fs.S3FileSystem(access_key="test", secret_key="test", endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1")
        for table in ["repos", "files"]:
            read = pyarrow.parquet.read_table(f"bucket/census/{table}", filesystem=store)
            assert len(read) == rows[f"census/{table}/*.parquet"], table
        assert len(pyarrow.parquet.read_table("from-s3.parquet")) == rows["models.parquet"]
    finally:
        server.stop()
    print("the census in an object store has the same rows")


if __name__ == "__main__":
    main()
