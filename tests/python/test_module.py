"""The module: results, errors, threads, tasks, processes and signals."""

import asyncio
import dataclasses
import doctest
import errno
import faulthandler
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import hf_meta
import huggingface_hub
from support import ROOT, local_hub, silent_server, use_local_hub

BLOOM = 176247271424
QUANTIZED = "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit"
# A call that hangs ends the tests.
faulthandler.dump_traceback_later(900, exit=True)


def setUpModule():
    global hub
    hub = use_local_hub()
    os.environ.pop("HF_TOKEN", None)


def total(source):
    return hf_meta.inspect(source).parameter_total


def plain(value):
    """Returns a value with dicts in place of dataclasses, and without fields that huggingface_hub does not have."""
    if dataclasses.is_dataclass(value):
        names = {field.name for field in dataclasses.fields(value)} | {"parameter_count"}
        return {name: plain(getattr(value, name)) for name in names - {"pickle"}}
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    return value


def code_of_error(source, **settings):
    try:
        hf_meta.inspect(source, **settings)
    except hf_meta.HfMetaError as error:
        return error.code


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "hf_meta", *arguments], capture_output=True, text=True, **options)


class Results(unittest.TestCase):
    def test_three_lines_count_the_parameters_of_bloom(self):
        code = 'import hf_meta\nbloom = hf_meta.inspect("bigscience/bloom")\nprint(bloom.parameter_total)'
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
        self.assertEqual(printed.stdout, f"{BLOOM}\n")

    def test_memory_is_added_on_request(self):
        name = QUANTIZED
        self.assertIsNone(hf_meta.inspect(name).memory)
        memory = hf_meta.inspect(name, memory=1024).memory
        self.assertEqual((memory.context, memory.cache_bytes), (1024, 1024 * 32 * 2 * 8 * 128 * 2))
        self.assertIsNone(memory.budget_bytes)

    def test_memory_is_a_flag_or_a_context(self):
        maximum = hf_meta.inspect(QUANTIZED, memory=True).memory
        command = json.loads(run(QUANTIZED, "--json", "--summary", "--memory").stdout)["memory"]
        self.assertEqual((maximum.context, maximum.cache_bytes), (command["context"], command["cacheBytes"]))
        self.assertIsNone(hf_meta.inspect(QUANTIZED, memory=False).memory)
        self.assertEqual(hf_meta.inspect(QUANTIZED, memory="32k").memory.context, 32768)
        for wrong in (-1, 0, "", "x", "1.5k"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "`memory`: expected a number of tokens"):
                hf_meta.inspect(QUANTIZED, memory=wrong)

    def test_the_options_of_memory_are_those_of_the_command(self):
        options = {"batch": 4, "cache_dtype": "fp8", "engine": "vllm", "tp": 2, "max_num_batched_tokens": 2048}
        flags = ["--batch=4", "--cache-dtype=fp8", "--engine=vllm", "--tp=2", "--max-num-batched-tokens=2048"]
        options["gpu_memory_utilization"], flags = 0.8, [*flags, "--gpu-memory-utilization=0.8"]
        report = hf_meta.inspect(QUANTIZED, memory=4096, fit="80GiB", **options)
        command = run(QUANTIZED, "--json", "--summary", "--memory", "--context=4096", "--fit=80GiB", *flags)
        self.assertEqual(json.loads(report.to_json())["memory"], json.loads(command.stdout)["memory"])
        self.assertEqual((report.memory.batch, report.memory.vllm["gpus"]), (4, 2))
        self.assertEqual(report.memory.usable_bytes, report.memory.budget_bytes * 8 // 10)
        for arguments, message in [
            ({"batch": 4}, "`batch`: requires `memory` or `fit`"),
            ({"engine": "vllm"}, "`engine`: requires `memory` or `fit`"),
            ({"memory": True, "tp": 2}, '`tp` requires `engine="vllm"`'),
            ({"memory": True, "batch": 0}, "`batch`: expected a number of sequences"),
            ({"memory": True, "cache_dtype": "f7"}, "`cache_dtype`: expected one of f32, f16"),
            ({"fit": "24"}, "`fit`: expected a size, such as 24GB or 24GiB"),
            ({"fit": 0}, "`fit`: expected a size"),
            ({"memory": True, "engine": "vllm", "gpu_memory_utilization": 2}, "`gpu_memory_utilization`: expected"),
        ]:
            with self.subTest(arguments), self.assertRaises(ValueError) as caught:
                hf_meta.inspect(QUANTIZED, **arguments)
            self.assertTrue(str(caught.exception).startswith(message), caught.exception)

    def test_the_answer_of_an_engine_is_the_one_of_the_command(self):
        options = {"engine": "vllm", "gpu": "2xH100", "context": "4k", "cache_dtype": "fp8"}
        answer = hf_meta.verify(QUANTIZED, **options)
        command = run("verify", QUANTIZED, "--json", "--engine=vllm", "--gpu=2xH100", "--context=4k", "--cache-dtype=fp8")
        self.assertEqual(json.loads(answer.to_json())["engine"], json.loads(command.stdout)["engine"])
        # vLLM has no bitsandbytes any more.
        self.assertEqual((answer.engine.loads, answer.engine.reasons[0]["code"]), (False, "method"))
        self.assertEqual((answer.engine.gpus["name"], answer.engine.memory.context), ("H100", 4096))
        self.assertIsNone(hf_meta.verify(QUANTIZED).engine)
        for arguments, message in [
            ({"gpu": "h100"}, "`gpu`: requires `engine`"),
            ({"context": 4096}, "`context`: requires `engine`"),
            ({"engine": "vllm", "gpu": "h1000"}, "`gpu`: no GPU is called `h1000`; the nearest are h100"),
            ({"engine": "vllm", "gpu": "h100", "fit": "80GB"}, "a GPU has a memory"),
        ]:
            with self.subTest(arguments), self.assertRaises(ValueError) as caught:
                hf_meta.verify(QUANTIZED, **arguments)
            self.assertTrue(str(caught.exception).startswith(message), caught.exception)

    def test_the_answer_whether_a_model_fits(self):
        fits = hf_meta.inspect(QUANTIZED, fit="24 GB", memory=1024, engine="vllm").memory
        self.assertEqual((fits.fits, fits.budget_bytes, fits.context_source), (True, 24 * 10**9, "option"))
        self.assertEqual(fits.vllm["blocks"], 64)
        small = hf_meta.inspect(QUANTIZED, fit=1).memory
        self.assertEqual((small.fits, small.longest_context), (False, 0))
        for arguments in [{"fit": "24"}, {"fit": "1GB", "engine": "none"}]:
            with self.assertRaises(ValueError):
                hf_meta.inspect(QUANTIZED, **arguments)

    def test_the_format_of_the_weights_can_be_selected(self):
        self.assertEqual(hf_meta.inspect("example/Llama-3.2-1B-GGUF", weights="gguf").format, "gguf")
        self.assertEqual(code_of_error("example/Llama-3.2-1B-GGUF", weights="safetensors"), "noWeights")

    def test_the_representation_of_a_result_is_one_short_line(self):
        shown = repr(hf_meta.inspect("bigscience/bloom", headers=True))
        self.assertTrue(shown.startswith("CountReport(source='bigscience/bloom', commit='"), shown)
        self.assertIn(f"parameter_total={BLOOM}", shown)
        self.assertLess(len(shown), 250)

    def test_a_result_is_the_json_of_the_command(self):
        for headers, options in [(False, ["--json", "--summary"]), (True, ["--json"])]:
            command = json.loads(run("gpt2", *options, check=True).stdout)
            module = json.loads(hf_meta.inspect("gpt2", headers=headers).to_json())
            for document in (command, module):
                del document["fetch"]
            self.assertEqual(module, command)

    def test_verify_and_diff_are_the_json_of_the_command(self):
        shards = "example/shards-without-index"
        for name, sources, options, flags in [
            ("verify", [QUANTIZED], {}, []),
            ("verify", ["example/Llama-3.2-1B-GGUF"], {"all": True}, ["--all"]),
            ("verify", ["example/Llama-3.2-1B-GGUF"], {"path": "Q8_0", "weights": "gguf"}, ["--path=Q8_0", "--weights=gguf"]),
            ("verify", ["example/lora"], {"base": "gpt2"}, ["--base=gpt2"]),
            ("diff", ["gpt2", "roberta-base"], {}, []),
            ("diff", [shards, shards], {"ignore_shards": True}, ["--ignore-shards"]),
        ]:
            with self.subTest(name, flags=flags):
                result = getattr(hf_meta, name)(*sources, **options)
                awaited = asyncio.run(getattr(hf_meta.aio, name)(*sources, **options))
                command = json.loads(run(name, *sources, *flags, "--json").stdout)
                modules = [json.loads(result.to_json()), json.loads(awaited.to_json())]
                for document in (command, *modules):
                    document.pop("fetch", None)
                self.assertEqual(modules, [command, command])
                self.check_fields(result, command)
        for call in (lambda: hf_meta.verify("gpt2", revision="none"), lambda: hf_meta.diff("gpt2@none", "gpt2")):
            with self.assertRaises(hf_meta.HfMetaError) as caught:
                call()
            self.assertEqual(caught.exception.code, "revisionNotFound")

    def test_an_invalid_file_is_a_finding_of_verify(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "model.safetensors").write_bytes(b"<html>")
            report = hf_meta.verify(pathlib.Path(folder))
        self.assertEqual((report.valid, report.findings[0].kind), (False, "malformedHeader"))

    def test_a_source_can_be_a_path(self):
        header = b'{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.safetensors")
            path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(3))
            self.assertEqual(total(path), 3)
            before = pathlib.Path.cwd()
            os.chdir(folder)
            try:
                pathlib.Path("gpt2").mkdir()
                path.rename("gpt2/model.safetensors")
                self.assertEqual(total(pathlib.Path("gpt2")), 3, "a path is never a repository")
            finally:
                os.chdir(before)

    def test_text_names_folders_as_in_the_command(self):
        header = b'{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"HOME": folder}):
            path = pathlib.Path(folder, "gpt2", "model.safetensors")
            path.parent.mkdir()
            path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(3))
            before = pathlib.Path.cwd()
            os.chdir(folder)
            try:
                for source in ["gpt2/", "./gpt2", "~/gpt2", pathlib.Path("gpt2")]:
                    report = hf_meta.inspect(source)
                    self.assertEqual((report.parameter_total, report.source), (3, str(source)))
                    self.assertEqual(hf_meta.verify(source).source, str(source))
                self.assertEqual(total("gpt2"), 137022720, "a bare name is a repository")
                # No request is sent for a folder that does not exist.
                for source in ["none/", "org/none/", "~/none"]:
                    with self.subTest(source), self.assertRaises(FileNotFoundError):
                        hf_meta.inspect(source, endpoint="http://127.0.0.1:9")
                rows = hf_meta.read(["gpt2/", pathlib.Path("gpt2"), "gpt2", "none/"])
                self.assertEqual(rows["parameter_total"].to_pylist(), [3, 3, 137022720, None])
                self.assertEqual(rows["repo"].to_pylist()[0], "gpt2/")
                self.assertEqual(rows["status"].to_pylist()[:3], ["ok"] * 3)
                self.assertEqual(hf_meta.diff("gpt2/", "~/gpt2").unchanged, 1)
            finally:
                os.chdir(before)

    def check_fields(self, result, document):
        """Compares a result with its JSON. Returns the fields that were compared."""
        snake_case = lambda key: re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), key)  # noqa: E731
        seen = set()
        for key, value in document.items():
            self.assertTrue(hasattr(result, snake_case(key)), f"{type(result).__name__}.{key}")
            found = getattr(result, snake_case(key))
            seen.add((type(result).__name__, key))
            if type(result).__name__ == "SafetensorsFileMetadata" or key in ("header", "headers"):
                continue
            for found, value in zip(found, value) if isinstance(value, list) else [(found, value)]:
                if type(found).__name__ == "Finding":
                    kept = {"severity", "kind", "message", "help"}
                    details = {snake_case(key): value[key] for key in value if key not in kept}
                    self.assertEqual((found.details, found.help), (details, value.get("help")))
                elif dataclasses.is_dataclass(found):
                    seen |= self.check_fields(found, value)
                else:
                    self.assertEqual(found, value)
        return seen

    def test_the_fields_of_a_result_are_those_of_the_json(self):
        seen = set()
        repos = {path.relative_to(ROOT / "fixtures").parent for path in ROOT.glob("fixtures/**/*.json")}
        repos = sorted({"/".join(path.parts[:2]) for path in repos if path.parts} | {"openai/gpt-oss-120b"})
        for repo in repos:
            try:
                report = hf_meta.inspect(repo, headers=True, memory=True)
            except hf_meta.HfMetaError as error:
                self.assertIn(error.code, ["repoNotFound", "noWeights", "severalSets", "malformedHeader"])
                continue
            seen |= self.check_fields(report, json.loads(report.to_json()))
        self.assertGreater(len(seen), 70)
        self.assertIn(("ModelDescription", "contextLength"), seen)

    def test_a_notebook_shows_the_counts(self):
        table = hf_meta.inspect("gpt2")._repr_html_()
        self.assertIn("<td>F32</td><td>137,022,720</td><td>137,022,720</td><td>548,090,880</td>", table)
        self.assertIn("<caption>gpt2</caption>", table)
        report = hf_meta.inspect(QUANTIZED, fit="24GB")
        answer = f"memory at {report.memory.context:,} tokens: {report.memory.total_bytes:,} bytes, "
        answer += "fits into" if report.memory.fits else "does not fit into"
        self.assertIn(f"<caption>{QUANTIZED}: {answer} 24,000,000,000 bytes</caption>", report._repr_html_())

    def test_a_notebook_shows_findings_and_differences(self):
        with tempfile.TemporaryDirectory() as folder:
            name = "a<b>"
            pathlib.Path(folder, name).mkdir()
            pathlib.Path(folder, name, "model.safetensors").write_bytes(b"<html>")
            table = hf_meta.verify(pathlib.Path(folder, name))._repr_html_()
        self.assertIn("<td>error</td><td>malformedHeader</td>", table)
        self.assertIn("a&lt;b&gt;: not valid, 0 of 1 file, 0 tensors", table)
        self.assertNotIn("<b>", table)
        table = hf_meta.diff("gpt2", "roberta-base")._repr_html_()
        self.assertIn("<th>tensor</th><th>change</th><th>before</th><th>after</th>", table)
        self.assertRegex(table, r"<td>[\w.]+</td><td>removed</td><td>F32 \[[\d, ]+\] model.safetensors</td><td></td>")
        self.assertRegex(table, r'<td colspan="4">\d+ more</td>')
        self.assertLess(len(table), 20_000)

    def test_reports_are_true_or_false(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "model.safetensors").write_bytes(b"<html>")
            self.assertFalse(hf_meta.verify(folder + "/"))
        self.assertTrue(hf_meta.verify("gpt2"))
        self.assertTrue(hf_meta.diff("gpt2", "roberta-base"))
        self.assertFalse(hf_meta.diff("gpt2", "gpt2"))

    def test_the_metadata_is_that_of_huggingface_hub(self):
        api = huggingface_hub.HfApi(endpoint=hub, token=False)
        for repo, true_total in [("gpt2", 137022720), ("bigscience/bloom", BLOOM), (QUANTIZED, 8030261248)]:
            theirs, ours = api.get_safetensors_metadata(repo), hf_meta.get_safetensors_metadata(repo, token=False)
            self.assertEqual(ours.report.parameter_total, true_total)
            for field in dataclasses.fields(theirs):
                with self.subTest(repo, field=field.name):
                    self.assertEqual(plain(getattr(ours, field.name)), plain(getattr(theirs, field.name)))

    def test_the_program_whose_types_are_checked_runs(self):
        sample = pathlib.Path(__file__).with_name("sample.py")
        subprocess.run([sys.executable, sample], check=True, stdout=subprocess.DEVNULL)

    def test_the_page_shows_what_the_module_returns(self):
        page = pathlib.Path(__file__).parents[2] / "src/docs/python.md"
        with tempfile.TemporaryDirectory() as folder:
            texts = {"format": "pt", "ss_network_dim": "32", "ss_tag_frequency": json.dumps({"10_dog": {"dog": 10}})}
            header = json.dumps({"__metadata__": texts}).ljust(1_000).encode()
            pathlib.Path(folder, "lora.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)
            failed, tried = doctest.testfile(str(page), module_relative=False)
            os.chdir(page.parent)
        self.assertEqual(failed, 0)
        self.assertGreater(tried, 3)


class Errors(unittest.TestCase):
    def test_an_error_has_the_code_of_the_json(self):
        cases = [("org/none", "repoNotFound", 401), ("a/b/c/d", "invalidSource", None), ("gpt2@none", "revisionNotFound", 404)]
        for source, code, status in cases:
            with self.subTest(source), self.assertRaises(hf_meta.HfMetaError) as caught:
                hf_meta.inspect(source)
            error = caught.exception
            self.assertEqual((error.code, error.status, error.retry_after), (code, status, None))
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((str(copy), copy.code), (str(error), code))
            document = json.loads(run(source, "--json").stdout)
            self.assertEqual((document["error"]["code"], document["error"].get("status")), (code, status))

    def test_errors_have_help(self):
        with self.assertRaises(hf_meta.HfMetaError) as caught:
            hf_meta.inspect("org/none", token="hf_x")
        error = caught.exception
        self.assertIn("the token comes from `token`", error.help)
        self.assertIsNone(error.other_sets)
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((copy.help, copy.status), (error.help, error.status))
        if sys.version_info >= (3, 11):
            self.assertEqual(error.__notes__, [f"help: {error.help}"])
            self.assertEqual(copy.__notes__, error.__notes__)
        with self.assertRaises(hf_meta.HfMetaError) as caught:
            hf_meta.inspect("example/Llama-3.2-1B-GGUF", path="Q9_9")
        self.assertEqual(caught.exception.help, "set `path` to one of them: BF16, Q2_K, Q4_K_M, Q8_0")
        with self.assertRaises(hf_meta.HfMetaError) as caught:
            hf_meta.diff("gpt2", "org/none")
        self.assertIn("check the spelling", caught.exception.help)
        header = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
        file = len(header).to_bytes(8, "little") + header + bytes(1)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a", "b"):
                pathlib.Path(folder, f"{name}.safetensors").write_bytes(file)
            with self.assertRaises(hf_meta.HfMetaError) as caught:
                hf_meta.inspect(pathlib.Path(folder))
            sets = caught.exception.other_sets
            self.assertEqual([found.path for found in sets], ["a.safetensors", "b.safetensors"])
            self.assertIsInstance(sets[0], hf_meta.WeightSet)
            self.assertTrue(caught.exception.help.startswith("set `path` to one of them"))
            self.assertEqual(pickle.loads(pickle.dumps(caught.exception)).other_sets, sets)
            pathlib.Path(folder, "x.safetensors").write_bytes(b"")

    def test_errors_name_their_argument(self):
        for arguments, message in [
            ({"source": None}, "`source` must be the name of a repository, a URL, or a path, not NoneType"),
            ({"source": 3}, "`source` must be"),
            ({"source": "gpt2", "revision": 1}, "`revision` must be text, not int"),
            ({"source": "gpt2", "memory": [1]}, "`memory` must be True, or a context length"),
            ({"source": "gpt2", "fit": True}, "`fit` must be a number of bytes, or text"),
            ({"source": "gpt2", "memory": True, "batch": True}, "`batch` must be a whole number, not True"),
            ({"source": "gpt2", "timeout": "1"}, "`timeout` must be a number, not str"),
            ({"source": "gpt2", "headers": 1}, "`headers` must be True or False, not int"),
        ]:
            with self.subTest(arguments), self.assertRaises(TypeError) as caught:
                hf_meta.inspect(**arguments)
            self.assertTrue(str(caught.exception).startswith(message), caught.exception)
        for settings, message in [({"jobs": "1"}, "`jobs` must be"), ({"quota_share": None}, "`quota_share` must be")]:
            with self.subTest(settings), self.assertRaises(TypeError) as caught:
                hf_meta.read(["gpt2"], **settings)
            self.assertTrue(str(caught.exception).startswith(message), caught.exception)
        for call, message in [
            (lambda: hf_meta.inspect("gpt2", revision=""), "`revision` must not be empty"),
            (lambda: hf_meta.verify("gpt2", path=" "), "`path` must not be empty"),
            (lambda: hf_meta.inspect("gpt2", weights="onnx"), "`weights` must be `safetensors`, `gguf` or `pytorch`, not `onnx`"),
            (lambda: hf_meta.get_safetensors_metadata("gpt2", repo_type="x"), "`repo_type` must be `model`, `dataset` or `space`"),
            (lambda: hf_meta.read(["gpt2"], contact="a\nb"), "`contact` must be an email address or a URL"),
            (lambda: hf_meta.read("gpt2"), "`repos` must be a list of names, not one name"),
            (lambda: hf_meta.read(5), "`repos` must be a list of names or a table, not int"),
            (lambda: hf_meta.read([5]), "`repos` must contain names of repositories, not int"),
        ]:
            with self.subTest(message), self.assertRaises((TypeError, ValueError)) as caught:
                call()
            self.assertTrue(str(caught.exception).startswith(message), caught.exception)
        with self.assertRaisesRegex(TypeError, "`before` must be"):
            hf_meta.diff(None, "gpt2")
        with self.assertRaisesRegex(TypeError, "`revision` must be text"):
            asyncio.run(hf_meta.aio.verify("gpt2", revision=b"main"))

    def test_errors_of_files_are_os_errors(self):
        with tempfile.TemporaryDirectory() as folder:
            missing = os.path.join(folder, "missing")
            for call in [
                lambda: hf_meta.inspect(pathlib.Path(missing)),
                lambda: hf_meta.census.read(pathlib.Path(missing), folder),
                lambda: hf_meta.census.read(["gpt2"], os.path.join(os.devnull, "census")),
                lambda: hf_meta.census.count(missing),
            ]:
                with self.assertRaises(OSError) as caught:
                    call()
                copy = pickle.loads(pickle.dumps(caught.exception))
                self.assertEqual(str(copy), str(caught.exception))
            with self.assertRaises(FileNotFoundError) as caught:
                hf_meta.inspect(pathlib.Path(missing))
            self.assertEqual((caught.exception.errno, caught.exception.filename), (errno.ENOENT, missing))

    def test_the_token_comes_from_the_environment(self):
        with silent_server() as (server, endpoint), mock.patch.dict(os.environ, {"HF_TOKEN": "hf_secret"}):
            arguments = {"endpoint": endpoint, "timeout": 1}
            call = threading.Thread(target=code_of_error, args=["gpt2"], kwargs=arguments)
            call.start()
            with server.accept()[0] as connection:
                self.assertIn(b"authorization: Bearer hf_secret", connection.recv(10_000))
            call.join()

    def test_wrong_settings_are_errors(self):
        for settings in [{"plan": "none"}, {"timeout": -1}, {"timeout": float("nan")}]:
            with self.subTest(settings), self.assertRaises(ValueError):
                hf_meta.inspect("gpt2", **settings)
        shares = [{"quota_share": share} for share in (0, -1, 1.5, float("nan"))]
        for settings in [*shares, {"jobs": 0}, {"jobs": 1_001}, {"timeout": 0}]:
            with self.subTest(settings), self.assertRaises(ValueError):
                hf_meta.read(["gpt2"], **settings)
        with self.assertRaises(TypeError):
            hf_meta.read(["gpt2"], job=1)
        with self.assertRaises(hf_meta.HfMetaError) as caught:
            hf_meta.inspect("gpt2", endpoint="nonsense")
        self.assertEqual(caught.exception.code, "invalidSettings")

    def test_local_files_need_no_usable_connection(self):
        header = b'{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.safetensors")
            path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(3))
            for variable in ("HF_ENDPOINT", "https_proxy"):
                with self.subTest(variable), mock.patch.dict(os.environ, {variable: "nonsense://"}):
                    self.assertEqual(total(path), 3)
                    self.assertTrue(hf_meta.verify(path).valid)
                    self.assertEqual(hf_meta.diff(path, path).unchanged, 1)
        with mock.patch.dict(os.environ, {"HF_ENDPOINT": "nonsense://"}):
            self.assertEqual(code_of_error("gpt2"), "invalidSettings")


class Tasks(unittest.IsolatedAsyncioTestCase):
    async def test_concurrent_calls_have_the_results_of_blocking_ones(self):
        names = ["gpt2", "bigscience/bloom", "bigscience/bloom-560m"]
        reports = await asyncio.gather(*map(hf_meta.aio.inspect, names))
        self.assertEqual([report.parameter_total for report in reports], [total(name) for name in names])
        with self.assertRaises(hf_meta.HfMetaError) as caught:
            await hf_meta.aio.inspect("org/none")
        self.assertEqual(caught.exception.code, "repoNotFound")
        metadata = await hf_meta.aio.get_safetensors_metadata("gpt2")
        self.assertEqual(metadata.report.parameter_total, 137022720)

    async def test_a_cancelled_task_ends_its_call_and_never_blocks_the_loop(self):
        loop = asyncio.get_running_loop()
        for call in (hf_meta.aio.inspect, lambda name, **settings: hf_meta.aio.read([name], **settings)):
            with silent_server() as (server, endpoint):
                server.setblocking(False)
                task = asyncio.create_task(call("gpt2", endpoint=endpoint))
                # The loop runs, because the connection is accepted while the task waits.
                connection, _ = await loop.sock_accept(server)
                with connection:
                    connection.setblocking(False)
                    self.assertTrue(await loop.sock_recv(connection, 10_000))
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                    while await loop.sock_recv(connection, 10_000):
                        pass

    async def test_a_timeout_of_asyncio_cancels_a_call(self):
        with silent_server() as (_, endpoint):
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(hf_meta.aio.inspect("gpt2", endpoint=endpoint), 0.2)


class Processes(unittest.TestCase):
    @unittest.skipUnless(sys.platform == "linux", "counts the entries of /proc/self")
    def test_tokens_share_threads_and_connections(self):
        code = """import concurrent.futures, os, hf_meta
with concurrent.futures.ThreadPoolExecutor(20) as pool:
    totals = pool.map(lambda number: hf_meta.inspect("gpt2", token=f"hf_{number}").parameter_total, range(100))
    print(*set(totals))
print(len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))"""
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
        result, threads, files = map(int, printed.split())
        self.assertEqual(result, 137022720)
        # The threads of the runtime, some that end after ten idle seconds, and one connection per call.
        self.assertLess(threads, 40)
        self.assertLess(files, 150)

    def test_a_process_ends_while_calls_run(self):
        with silent_server() as (server, endpoint):
            code = f"""import hf_meta, threading, time
for call in range(20):
    threading.Thread(target=hf_meta.inspect, args=["gpt2"], kwargs={{"endpoint": "{endpoint}"}}, daemon=True).start()
time.sleep(0.3)"""
            ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_a_call_releases_the_gil(self):
        with silent_server() as (server, endpoint):
            with ThreadPoolExecutor(1) as pool:
                call = pool.submit(code_of_error, "gpt2", endpoint=endpoint, timeout=1)
                # The call is waiting for its answer while this thread runs.
                with server.accept()[0]:
                    self.assertEqual(call.result(), "timeout")

    def test_a_fork_can_call_after_its_parent(self):
        self.assertEqual(total("bigscience/bloom"), BLOOM)
        for method in ["fork", "spawn"]:
            context = multiprocessing.get_context(method)
            with self.subTest(method), context.Pool(2) as pool:
                self.assertEqual(pool.map(total, ["bigscience/bloom"] * 4), [BLOOM] * 4)

    def test_a_fork_ends_after_its_calls(self):
        self.assertEqual(total("bigscience/bloom"), BLOOM)
        child = multiprocessing.get_context("fork").Process(target=total, args=["gpt2"])
        child.start()
        child.join()
        self.assertEqual(child.exitcode, 0)

    def test_a_fork_runs_its_exit_handlers(self):
        code = """import hf_meta, os, sys
hf_meta.inspect("gpt2")
child = os.fork()
if child == 0:
    hf_meta.inspect("gpt2")
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
        ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stdout), (0, "7\n"))

    def interrupted(self, *arguments):
        """Returns the process of a call that was interrupted while it waited for an answer."""
        with silent_server() as (server, endpoint):
            environment = {**os.environ, "HF_ENDPOINT": endpoint}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = subprocess.Popen([sys.executable, *arguments], env=environment, **pipes)
            with server.accept()[0]:
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate()
        return process.returncode, errors

    def test_ctrl_c_interrupts_a_call(self):
        status, errors = self.interrupted("-c", 'import hf_meta; hf_meta.inspect("gpt2")')
        self.assertIn("KeyboardInterrupt", errors)
        self.assertEqual(status, -signal.SIGINT)

    def test_ctrl_c_interrupts_tasks(self):
        status, errors = self.interrupted("-c", 'import asyncio, hf_meta; asyncio.run(hf_meta.aio.inspect("gpt2"))')
        self.assertIn("KeyboardInterrupt", errors)
        self.assertEqual(status, -signal.SIGINT)

    def test_ctrl_c_ends_the_command(self):
        status, errors = self.interrupted("-m", "hf_meta", "gpt2")
        self.assertNotIn("Traceback", errors)
        self.assertEqual(status, -signal.SIGINT)


class Command(unittest.TestCase):
    def test_the_command_is_installed_with_its_exit_codes(self):
        script = pathlib.Path(sys.executable).with_name("hf-meta")
        for arguments, status in [(["gpt2"], 0), (["gpt2", "--path", "none.safetensors"], 1), (["--none"], 2), (["org/none"], 3)]:
            with self.subTest(arguments):
                self.assertEqual(subprocess.run([script, *arguments], capture_output=True).returncode, status)
                self.assertEqual(run(*arguments).returncode, status)

    def test_the_reader_of_the_output_may_close_it(self):
        script = f'"{sys.executable}" -m hf_meta bigscience/bloom --tensors; echo $? >&2'
        with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            process.stdout.close()
            self.assertEqual(process.stderr.read(), "0\n")

    def test_the_version_is_that_of_the_package(self):
        version = importlib.metadata.version("hf-meta")
        self.assertEqual(run("--version").stdout.splitlines()[0], f"hf-meta {version}")
        manifest = (pathlib.Path(__file__).parents[2] / "Cargo.toml").read_text()
        self.assertIn(f'\nversion = "{version}"\n', manifest)


if __name__ == "__main__":
    unittest.main()
