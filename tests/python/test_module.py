"""The module: results, errors, threads, processes and signals."""

import ast
import doctest
import faulthandler
import importlib.metadata
import inspect
import json
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import hf_meta
from support import local_hub, silent_server

BLOOM = 176247271424
# A call that hangs ends the tests.
faulthandler.dump_traceback_later(300, exit=True)


def setUpModule():
    global hub
    hub = unittest.enterModuleContext(local_hub())
    environment = {"HF_ENDPOINT": hub, "HF_META_CACHE": "off", "HF_HUB_CACHE": "/nonexistent"}
    unittest.enterModuleContext(mock.patch.dict(os.environ, environment))
    os.environ.pop("HF_TOKEN", None)


def total(source):
    return hf_meta.inspect(source)["parameterTotal"]


def code_of_error(source, **settings):
    try:
        hf_meta.inspect(source, **settings)
    except hf_meta.HfMetaError as error:
        return error.code


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "hf_meta", *arguments], capture_output=True, text=True, **options)


class Results(unittest.TestCase):
    def test_three_lines_count_the_parameters_of_bloom(self):
        code = 'import hf_meta\nbloom = hf_meta.inspect("bigscience/bloom")\nprint(bloom["parameterTotal"])'
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
        self.assertEqual(printed.stdout, f"{BLOOM}\n")

    def test_memory_is_added_on_request(self):
        name = "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit"
        self.assertNotIn("memory", hf_meta.inspect(name))
        memory = hf_meta.inspect(name, memory=1024)["memory"]
        self.assertEqual((memory["context"], memory["cacheBytes"]), (1024, 1024 * 32 * 2 * 8 * 128 * 2))

    def test_a_result_is_the_json_of_the_command(self):
        for headers, options in [(False, ["--json", "--summary"]), (True, ["--json"])]:
            command = json.loads(run("gpt2", *options, check=True).stdout)
            module = hf_meta.inspect("gpt2", headers=headers)
            for document in (command, module):
                del document["fetch"]
            self.assertEqual(module, command)

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

    def test_the_stubs_name_every_function_and_parameter(self):
        stubs = pathlib.Path(hf_meta.__file__).with_suffix(".pyi")
        functions = {node.name: node.args for node in ast.parse(stubs.read_text()).body if isinstance(node, ast.FunctionDef)}
        for name in hf_meta.__all__:
            value = getattr(hf_meta, name)
            if inspect.isfunction(value):
                stub = [*functions[name].args, *functions[name].kwonlyargs]
                self.assertEqual([argument.arg for argument in stub], list(inspect.signature(value).parameters))
        self.assertTrue(stubs.with_name("py.typed").exists())


    def test_the_page_shows_what_the_module_returns(self):
        page = pathlib.Path(__file__).parents[2] / "src/docs/python.md"
        failed, tried = doctest.testfile(str(page), module_relative=False)
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
        with self.assertRaises(hf_meta.HfMetaError) as caught:
            hf_meta.inspect("gpt2", endpoint="nonsense")
        self.assertEqual(caught.exception.code, "invalidSettings")


class Processes(unittest.TestCase):
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
