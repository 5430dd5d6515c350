#!/usr/bin/env python3
"""Derives `engines/engines.txt` from the wheels of vLLM, SGLang, transformers and mlx-lm, and the source of llama.cpp.

    tests/oracles/engines.py LLAMA-CRATE DATE TABLE WHEEL ...

LLAMA-CRATE is the folder of the crate `llama-cpp-sys-2`, and DATE the date of its release: the files of a crate have
none. The sources are parsed and never imported, because the engines are heavy to install. A second run writes the same
table. Needs Python 3.9 and nothing else. The first lines of the table explain its format.
"""

import ast
import collections
import pathlib
import re
import sys
import zipfile

HEADER = """\
# The engines, and the models and quantization methods that each of them registers. Written by tests/oracles/engines.py.
#
# engine        the version, the date of the release, and the formats of the weights
# suffix        vLLM converts a model whose name ends with the suffix into one with another suffix
# architecture  a class in `architectures` of config.json, and the engines that register it
# model_type    `model_type` of config.json, and the engines that load its configuration without remote code
# gguf          `general.architecture` of a GGUF file
# method        `quant_method`, with `quant_algo` behind a slash; `engine=name` is the method under another name
#
# Behind the name of an engine:
# :75           the minimum compute capability
# :rocm         also on GPUs of AMD
# :deprecated   only with `--allow-deprecated-quantization`
# :backend      the class lets other engines set its attention, so that vLLM and SGLang load it with their Transformers backend
# :until-1.2.0  the last version that registered it
# :plugin       only with a plugin
# :some         only for some models
# :no-pp        the layers of the class cannot be divided into stages
# :lora         the class loads adapters; without the mark, it loads none
# :lora-linear  the class loads adapters, except for embeddings and the output layer
"""
CORRECTIONS = pathlib.Path(__file__).with_name("engine_corrections.txt")
# Bases from other packages.
EXTERNAL = {"ABC", "Enum", "Generic", "NamedTuple", "Protocol", "object"}
FORMATS = {"safetensors": "safetensors", "pt": "pytorch", "gguf": "gguf"}


class Wheel:
    """The sources of a package."""

    def __init__(self, path):
        self.archive = zipfile.ZipFile(path)
        self.files = set(self.archive.namelist())
        name = next(name for name in self.files if name.endswith(".dist-info/METADATA"))
        self.date = "{:04}-{:02}-{:02}".format(*self.archive.getinfo(name).date_time)
        metadata = self.text(name)
        self.version = re.search(r"^Version: (.+)$", metadata, re.MULTILINE)[1]

    def text(self, name):
        return self.archive.read(name).decode()

    def tree(self, name):
        return ast.parse(self.text(name))

    def below(self, folder):
        return sorted(name for name in self.files if name.startswith(folder) and name.endswith(".py"))


def constant(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def assigned(tree, name):
    """Returns the value of the first assignment to a name, at any depth."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(getattr(target, "id", getattr(target, "attr", None)) == name for target in targets) and node.value is not None:
            return node.value
    sys.exit(f"`{name}` is missing")


def texts(node):
    """Returns all texts in an expression."""
    return [text for inner in ast.walk(node) if (text := constant(inner)) is not None]


def keys(node):
    """Returns the keys of a dictionary, of pairs, or of keyword arguments."""
    if isinstance(node, ast.Call):
        pairs = [constant(pair.elts[0]) for argument in node.args if isinstance(argument, ast.List) for pair in argument.elts]
        return pairs + [keyword.arg for keyword in node.keywords if keyword.arg]
    return [text for key in node.keys if key is not None and (text := constant(key)) is not None]


def pairs(node):
    """Returns the texts of a dictionary, or of a list of pairs."""
    if isinstance(node, ast.Call):
        return {constant(pair.elts[0]): constant(pair.elts[1]) for argument in node.args for pair in argument.elts}
    return {constant(key): constant(value) for key, value in zip(node.keys, node.values) if key is not None}


class Classes:
    """The classes of a package, by name."""

    def __init__(self, wheel, folders):
        self.classes, self.all = {}, collections.defaultdict(list)
        for name in (name for folder in folders for name in wheel.below(folder)):
            for node in wheel.tree(name).body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
                    self.all[node.name].append(node)

    def method(self, name, method):
        """Returns a method of a class or of its bases."""
        node = self.classes.get(name)
        if node is None:
            return None
        own = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == method), None)
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        return own or next((found for base in bases if (found := self.method(base, method))), None)

    def bases(self, name):
        """Returns the classes of a name, of which several files may have one, and their bases; `None` for what is not a class."""
        found, names = [], [name]
        while names:
            name = names.pop()
            nodes = self.all.get(name) or [None] * (name not in EXTERNAL)
            found += nodes
            bases = [base for node in nodes if node for base in node.bases if not isinstance(base, ast.Attribute)]
            # The base may be a call, which creates a class.
            names += [getattr(base, "id", "") for base in bases if getattr(base, "id", None) != name]
        return found

    def supports(self, name, interface, attribute):
        """Returns whether a class has an interface; `None` if a base is unknown."""
        bases = self.bases(name)
        if any(node and (node.name == interface or assigns(node, attribute)) for node in bases):
            return True
        return None if None in bases else False

    def capability(self, name):
        """Returns the minimum compute capability of a class: the number that the method returns, or the one of a class that it asks."""
        found = self.method(name, "get_min_capability")
        if found is None:
            return None
        # The returns before the last one are those of other platforms.
        value = max((node for node in ast.walk(found) if isinstance(node, ast.Return)), key=lambda node: node.lineno).value
        if isinstance(value, ast.IfExp):
            value = value.body if isinstance(value.test, ast.UnaryOp) else value.orelse
        if isinstance(value, ast.Call):
            return self.capability(value.func.value.id)
        return getattr(value, "value", None)

    def model_type(self, name):
        """Returns the model type of a configuration."""
        node = self.classes.get(name)
        body = node.body if node else []
        for item in body:
            targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
            if any(getattr(target, "id", None) == "model_type" for target in targets):
                return constant(item.value)
        return None


class Table:
    def __init__(self):
        self.lines, self.head = collections.defaultdict(dict), []

    def engine(self, name, version, date, formats):
        self.head.append(f"engine {name} {version} {date} {','.join(sorted(formats))}")

    def add(self, kind, name, engine, *marks, alias=None):
        if re.fullmatch(r"[\w./+-]+", name):
            alias = f"={alias}" if alias else ""
            self.lines[kind, name][engine] = "".join([engine, alias, *(f":{mark}" for mark in marks if mark)])

    def correct(self):
        """Adds the corrections. One that changes nothing is an error."""
        for line in CORRECTIONS.read_text().splitlines():
            if line and not line.startswith("#"):
                kind, name, *changed = line.split(" ")
                for word in changed:
                    engine = re.match(r"[\w.-]+", word)[0]
                    known = self.lines[kind, name].get(engine)
                    if known == word:
                        sys.exit(f"{line}: the table has it")
                    self.lines[kind, name][engine] = word

    def text(self):
        lines = sorted(f"{kind} {name} {' '.join(engines[engine] for engine in sorted(engines))}" for (kind, name), engines in self.lines.items() if engines)
        return HEADER + "\n".join([*self.head, *lines, ""])


def registered_formats(names):
    return {FORMATS[name] for name in names if name in FORMATS}


def add_vllm(table, wheel):
    root = "vllm/model_executor"
    formats = texts(assigned(wheel.tree(f"{root}/model_loader/__init__.py"), "LoadFormats"))
    table.engine("vllm", wheel.version, wheel.date, registered_formats(formats))
    registry = wheel.tree(f"{root}/models/registry.py")
    classes = Classes(wheel, [f"{root}/models/", "vllm/models/"])
    for names in (node.id for node in assigned(registry, "_VLLM_MODELS").values):
        registered = assigned(registry, names)
        for key, value in zip(registered.keys, registered.values):
            if key is not None and (name := constant(key)):
                marks = adapters(classes, texts(value)[-1], names == "_TEXT_GENERATION_MODELS"), stages(classes, texts(value)[-1])
                table.add("architecture", name, "vllm", *marks)
    for name, version in pairs(assigned(registry, "_PREVIOUSLY_SUPPORTED_MODELS")).items():
        table.add("architecture", name, "vllm", f"until-{version}")
    for name in keys(assigned(registry, "_OOT_SUPPORTED_MODELS")):
        table.add("architecture", name, "vllm", "plugin")
    for entry in assigned(wheel.tree("vllm/config/model.py"), "_SUFFIX_TO_DEFAULTS").elts:
        table.add("suffix", constant(entry.elts[0]), "vllm")
    for name in keys(assigned(wheel.tree("vllm/transformers_utils/config.py"), "_CONFIG_REGISTRY")):
        table.add("model_type", name, "vllm")
    add_vllm_methods(table, wheel, f"{root}/layers/quantization/")


def assigns(node, attribute):
    """Returns whether the body of a class assigns an attribute, other than an empty dictionary."""
    items = [item for item in node.body if isinstance(item, (ast.Assign, ast.AnnAssign)) and getattr(item.value, "keys", item.value)]
    targets = [target for item in items for target in (item.targets if isinstance(item, ast.Assign) else [item.target])]
    return any(getattr(target, "id", None) == attribute for target in targets)


def adapters(classes, name, is_text):
    """Returns the mark of the adapters that a class loads, or may load. Other models than those of text contain models with
    embeddings."""
    if classes.supports(name, "SupportsLoRA", "supports_lora") is False:
        return ""
    bases = classes.bases(name)
    has_embeddings = None in bases or any(assigns(node, "embedding_modules") for node in bases)
    return "lora-linear" if is_text and not has_embeddings else "lora"


def stages(classes, name):
    """Returns the mark of a class whose layers cannot be divided into stages."""
    return "no-pp" * (classes.supports(name, "SupportsPP", "supports_pp") is False)


def add_vllm_methods(table, wheel, folder):
    tree = wheel.tree(f"{folder}__init__.py")
    rocm = texts(assigned(wheel.tree("vllm/platforms/rocm.py"), "supported_quantization"))
    deprecated = texts(assigned(tree, "DEPRECATED_QUANTIZATION_METHODS"))
    classes = Classes(wheel, [folder, "vllm/models/deepseek_v4"])
    known = assigned(tree, "method_to_config")
    configs = {constant(key): value.id for key, value in zip(known.keys, known.values)}
    # The other names are those of methods that quantize while they load.
    names = texts(assigned(tree, "QuantizationMethods"))
    for name, config in {**dict.fromkeys(names, "OnlineQuantizationConfig"), **configs}.items():
        config = config if config in classes.classes else "DeepseekV4FP8Config"
        marks = [str(classes.capability(config) or ""), "rocm" * (name in rocm), "deprecated" * (name in deprecated)]
        table.add("method", name, "vllm", *marks)


def add_sglang(table, wheel):
    root = "sglang/srt"
    loader = wheel.tree(f"{root}/configs/load_config.py")
    formats = next(node for node in ast.walk(loader) if isinstance(node, ast.ClassDef) and node.name == "LoadFormat")
    table.engine("sglang", wheel.version, wheel.date, registered_formats(texts(formats)))
    for name in wheel.below(f"{root}/models/"):
        if name.count("/") != 3:
            continue
        for node in wheel.tree(name).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "EntryClass":
                for entry in node.value.elts if isinstance(node.value, ast.List) else [node.value]:
                    table.add("architecture", entry.id, "sglang")
    registry = wheel.tree(f"{root}/utils/hf_transformers/common.py")
    configs = Classes(wheel, [f"{root}/configs/"])
    found = assigned(registry, "_CONFIG_REGISTRY")
    for node in found.generators[0].iter.elts:
        if isinstance(node, ast.Name) and (name := configs.model_type(node.id)):
            table.add("model_type", name, "sglang")
    for node in ast.walk(registry):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", None) == "_CONFIG_REGISTRY" and (name := constant(node.slice)):
            table.add("model_type", name, "sglang")
    add_sglang_methods(table, wheel, f"{root}/layers/quantization/")


def add_sglang_methods(table, wheel, folder):
    tree = wheel.tree(f"{folder}__init__.py")
    classes = Classes(wheel, [folder])
    rocm = texts(assigned(wheel.tree("sglang/srt/configs/model_config.py"), "rocm_supported_quantization"))
    known = assigned(tree, "BASE_QUANTIZATION_METHODS")
    methods = {constant(key): value.id for key, value in zip(known.keys, known.values)}
    # Other methods are added for one platform. Those of CUDA are of interest.
    for node in (node for node in tree.body if isinstance(node, ast.If) and "is_cuda" in ast.dump(node.test)):
        for added in (inner for inner in ast.walk(node) if isinstance(inner, ast.Dict)):
            methods.update({constant(key): value.id for key, value in zip(added.keys, added.values)})
    for name, config in methods.items():
        table.add("method", name, "sglang", str(classes.capability(config) or ""), "rocm" * (name in rocm))


def add_transformers(table, wheel):
    auto = "transformers/models/auto/"
    formats = {"safetensors", "pytorch"} if "SAFE_WEIGHTS_NAME" in wheel.text("transformers/utils/__init__.py") else {"pytorch"}
    gguf = assigned(wheel.tree("transformers/integrations/ggml.py"), "GGUF_CONFIG_MAPPING")
    table.engine("transformers", wheel.version, wheel.date, formats | {"gguf"})
    for name in keys(gguf):
        table.add("gguf", name, "transformers")
    configs = pairs(assigned(wheel.tree(f"{auto}auto_mappings.py"), "CONFIG_MAPPING_NAMES"))
    modules = {}
    for name in wheel.below("transformers/models/"):
        if "/configuration_" in name or "/modeling_" in name:
            found = re.findall(r"^class (\w+)\(", wheel.text(name), re.MULTILINE)
            modules.update({text: name.rsplit("/", 1)[0] for text in found})
    models = collections.defaultdict(set)
    for node in wheel.tree(f"{auto}modeling_auto.py").body:
        if isinstance(node, ast.Assign) and node.targets[0].id.endswith("_MAPPING_NAMES"):
            for pair in (pair for argument in node.value.args for pair in getattr(argument, "elts", [])):
                if isinstance(pair, ast.Tuple):
                    models[constant(pair.elts[0])].update(texts(pair.elts[1]))
    # Other types are added to the generated ones.
    for node in (node for node in ast.walk(wheel.tree(f"{auto}configuration_auto.py")) if isinstance(node, ast.Dict)):
        configs.update({name: config for name, config in pairs(node).items() if config and config.endswith("Config")})
    for name, config in configs.items():
        # The classes of some models are those of another one.
        folders = {modules[text] for text in [config, *models[name]] if text in modules}
        has_backend = not folders or any(sets_attention(wheel, folder) for folder in sorted(folders))
        table.add("model_type", name, "transformers", "backend" * has_backend)
    for name in keys(assigned(wheel.tree("transformers/quantizers/auto.py"), "AUTO_QUANTIZATION_CONFIG_MAPPING")):
        # The number of bits is in another key.
        table.add("method", re.sub(r"_[48]bit$", "", name), "transformers")


def sets_attention(wheel, folder):
    """Returns whether other engines can set the attention of a model: PreTrainedModel.is_backend_compatible, and
    _can_set_attn_implementation, which looks into the source."""
    sources = [wheel.text(name) for name in wheel.below(f"{folder}/modeling_")]
    def is_set(source):
        has_class = re.search(r"^class \w*Attention\w*\(nn\.Module\):", source, re.MULTILINE)
        return not has_class or "ALL_ATTENTION_FUNCTIONS.get_interface(" in source or "_supports_attention_backend = True" in source
    return any(map(is_set, sources))


def add_mlx(table, wheel):
    formats = re.findall(r'"model\*\.(safetensors)"', wheel.text("mlx_lm/utils.py"))
    table.engine("mlx-lm", wheel.version, wheel.date, set(formats))
    tree = wheel.tree("mlx_lm/utils.py")
    models = {name.rsplit("/", 1)[1][:-3] for name in wheel.below("mlx_lm/models/") if name.count("/") == 2 and "class ModelArgs" in wheel.text(name)}
    renamed = pairs(assigned(tree, "MODEL_REMAPPING"))
    for name in models | {name for name, model in renamed.items() if model in models}:
        table.add("model_type", name, "mlx-lm")
    # The methods are compared one by one.
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and getattr(node.left, "id", None) == "quant_method":
            for name in texts(node.comparators[0]):
                table.add("method", name, "mlx-lm")


def add_llama(table, crate, date):
    root = crate / "llama.cpp"
    cmake = (root / "CMakeLists.txt").read_text()
    version = ".".join(re.search(rf"LLAMA_VERSION_{part} (\d+)", cmake)[1] for part in ["MAJOR", "MINOR", "PATCH"])
    table.engine("llama.cpp", version, date, {"gguf"})
    names = re.search(r"LLM_ARCH_NAMES = \{(.*?)\n\};", (root / "src/llama-arch.cpp").read_text(), re.DOTALL)[1]
    for name in re.findall(r'\{\s*LLM_ARCH_\w+,\s*"([^"]+)"\s*\}', names):
        table.add("gguf", name, "llama.cpp")


def main():
    crate, date, path, *wheels = sys.argv[1:]
    wheels = {pathlib.Path(wheel).name.split("-")[0]: wheel for wheel in wheels}
    table = Table()
    add_llama(table, pathlib.Path(crate), date)
    for name, add in {"mlx_lm": add_mlx, "sglang": add_sglang, "transformers": add_transformers, "vllm": add_vllm}.items():
        add(table, Wheel(wheels[name]))
    table.correct()
    pathlib.Path(path).write_text(table.text())


if __name__ == "__main__":
    main()
