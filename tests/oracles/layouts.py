#!/usr/bin/env python3
"""Derives `architectures/layouts.txt` from the samples of `layout_samples.py`.

    tests/oracles/layouts.py FOLDER TABLE
    tests/oracles/layouts.py --exceptions TABLE

For each dimension of each module and for the length of each list, the first formula is taken that holds in all samples,
with at least two different values. A dimension without a formula is `_`. Modules that are not stored in all samples form
groups that are stored together, with the condition on the configuration if there is one, or with the groups of which
always one is stored. A nested model whose modules agree with its own architecture refers to that layout.
A second run writes the same table. `layout_blocks.py` writes it, and its header explains the format.
Architectures with one sample are left out. `layout_corrections.txt` has what the samples do not show.
It ends with exceptions of all architectures, which are copied. The second command only copies them.
"""

import collections
import fnmatch
import functools
import itertools
import json
import pathlib
import re
import string
import sys

import numpy

import layout_blocks
from fixture import ROOT
from layout_blocks import is_rule, parent_of, parse, size

NAMES = {"$layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"), "$heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
         "$hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "emb_dim", "embed_dim")}
QUERIES, KEYS, BOTH = "$heads*head_dim", "num_key_value_heads*head_dim", "($heads+2*num_key_value_heads)*head_dim"
LINEAR_KEYS, LINEAR_VALUES = "linear_num_key_heads*linear_key_head_dim", "linear_num_value_heads*linear_value_head_dim"
FORMULAS = [
    "vocab_size", "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "$hidden", "3*$hidden", "4*$hidden", "2*$hidden", QUERIES, f"2*{QUERIES}", KEYS, f"2*{KEYS}", BOTH, "head_dim", "intermediate_size", "2*intermediate_size",
    "n_shared_experts*moe_intermediate_size", "num_shared_experts*moe_intermediate_size", "moe_num_shared_experts*moe_intermediate_size", "moe_num_shared_experts*intermediate_size",
    "kv_lora_rank+qk_rope_head_dim", "$heads*(qk_nope_head_dim+qk_rope_head_dim)", "$heads*(qk_nope_head_dim+v_head_dim)", "$heads*v_head_dim",
    "num_key_value_heads*v_head_dim", LINEAR_VALUES, LINEAR_KEYS, f"2*{LINEAR_KEYS}+{LINEAR_VALUES}", f"2*({LINEAR_KEYS}+{LINEAR_VALUES})", "linear_value_head_dim", "linear_num_value_heads",
    "2*linear_num_value_heads", "$heads", "$layers",
]
# Patches and positions of vision towers.
IMAGE = ["image_size/patch_size*(image_size/patch_size)", "image_size/patch_size*(image_size/patch_size)+1", "num_channels*patch_size*patch_size", "in_channels*patch_size*patch_size", "num_channels*temporal_patch_size*patch_size*patch_size",
         "in_channels*temporal_patch_size*patch_size*patch_size", "hidden_size*spatial_merge_size*spatial_merge_size", "num_attention_heads*head_dim"]


def flat(config, prefix="", depth=0):
    """Returns the values of a configuration by their path."""
    found = {}
    for key, value in config.items():
        if not re.fullmatch(r"[A-Za-z]\w*", key):
            continue
        if isinstance(value, dict):
            if depth < 3 and key != "per_layer_config":
                found.update(flat(value, f"{prefix}{key}.", depth + 1))
        else:
            found[prefix + key] = value
    return found


def is_number(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12


class Values:
    """The values of formulas in all configurations of an architecture; not-a-number if a key is missing."""

    def __init__(self, configs):
        self.flats = [flat(config) for config in configs]
        self.configs = configs
        self.keys = [key for key in dict.fromkeys(key for found in self.flats for key in found) if re.fullmatch(r"[A-Za-z][\w.]*", key)]
        self.cache = {}

    def at(self, index, layer, name):
        found = self.flats[index]
        if name in NAMES:
            name = next((key for key in NAMES[name] if found.get(key) is not None), name)
        value = found.get(name)
        if value is None and name == "num_key_value_heads":
            return self.at(index, layer, "$heads")
        if value is None and name == "head_dim":
            hidden, heads = self.at(index, layer, "$hidden"), self.at(index, layer, "$heads")
            return hidden // heads if hidden is not None and heads else None
        if isinstance(value, list):
            value = value[layer] if layer is not None and layer < len(value) else None
        if isinstance(value, bool):
            value = int(value)
        return value if is_number(value) else None

    def evaluate(self, formula, index, layer=None):
        try:
            get = lambda name: self.need(index, layer, name)
            return int(eval(code(formula), {"get": get, "count": len}))
        except (KeyError, IndexError, TypeError, ZeroDivisionError):
            return None

    def need(self, index, layer, name):
        if name.startswith("len."):
            value = self.flats[index].get(name[4:])
            if isinstance(value, list):
                return len(value)
            raise KeyError(name)
        if found := re.match(r"at(\d+)\.", name):
            return self.flats[index][name[found.end() :]][int(found[1])]
        value = self.at(index, layer, name)
        if value is None:
            raise KeyError(name)
        return value

    @functools.cached_property
    def scalars(self):
        """The integer keys with their values in each configuration."""
        found = {}
        for key in self.keys:
            values = [value.get(key) for value in self.flats]
            if any(is_number(value) for value in values) and not key.endswith(("_token_id", "_index", "_idx")):
                found[key] = numpy.array([value if is_number(value) else numpy.nan for value in values], dtype=float)
            lists = [value.get(key) for value in self.flats]
            if all(isinstance(value, list) for value in lists):
                found[f"len.{key}"] = numpy.array([len(value) for value in lists], dtype=float)
        return found

    @functools.cached_property
    def candidates(self):
        """The formulas with their values in each configuration, the most likely first."""
        texts, rows = [], []

        def add(text, row):
            if not numpy.isnan(row).all():
                texts.append(text)
                rows.append(row)

        def template(text, scope=""):
            scoped = re.sub(r"[a-z_$][\w$]*", lambda name: scope + name[0], text) if scope else text
            row = [self.evaluate(scoped, index) for index in range(len(self.configs))]
            add(scoped, numpy.array([numpy.nan if value is None else value for value in row], dtype=float))

        for text in FORMULAS:
            template(text)
        for scope in list(dict.fromkeys(key.rpartition(".")[0] + "." for key in self.keys if "." in key)):
            if any(f"{scope}hidden_size" in found for found in self.flats):
                row = [found.get(f"{scope}hidden_size") for found in self.flats]
                add(f"{scope}hidden_size", numpy.array([value if is_number(value) else numpy.nan for value in row], dtype=float))
        scopes = list(dict.fromkeys(key.rpartition(".")[0] + "." for key in self.keys if "." in key))
        single = self.scalars
        for key, row in single.items():
            add(key, row)
        for scope in ["", *scopes]:
            for text in IMAGE:
                template(text, scope)
        for factor in (2, 3, 4, 6, 8):
            for key, row in single.items():
                add(f"{factor}*{key}", factor * row)
        for key, row in single.items():
            add(f"{key}+1", row + 1)
            add(f"{key}+2", row + 2)
            add(f"{key}-1", row - 1)
            add(f"{key}/2", row // 2)
            add(f"{key}/4", row // 4)
        # Products and sums of two keys of one part, or of the outer model and a part.
        names = [key for key in single if not key.startswith("len.") and not re.search(r"position|vocab|token|window|beam|length|theta", key)]
        same = lambda a, b: a.rpartition(".")[0] == b.rpartition(".")[0]
        for a, b in itertools.combinations_with_replacement(names, 2):
            if same(a, b) or "." not in a or "." not in b:
                add(f"{a}*{b}", single[a] * single[b])
        for a, b in itertools.combinations(names, 2):
            if same(a, b):
                add(f"{a}+{b}", single[a] + single[b])
                add(f"2*{a}*{b}", 2 * single[a] * single[b])
                add(f"3*{a}*{b}", 3 * single[a] * single[b])
        for a, b in itertools.permutations(names, 2):
            if same(a, b):
                with numpy.errstate(divide="ignore", invalid="ignore"):
                    row = numpy.where(single[b] > 0, single[a] // single[b], numpy.nan)
                add(f"{a}/{b}", row)
                add(f"2*{a}+{b}" , 2 * single[a] + single[b])
        for a, b in itertools.combinations([key for key in self.keys if key in single], 2):
            if not same(a, b) and "." in a and "." in b:
                add(f"{a}*{b}", single[a] * single[b])
        return texts, numpy.array(rows) if rows else numpy.zeros((0, len(self.configs)))

    def find(self, instances):
        """Returns the first formula with the value of each instance, a tuple of configuration, layer and value."""
        values = {value for _, _, value in instances}
        if len(values) < 2:
            return None
        by_config = collections.defaultdict(set)
        for index, _, value in instances:
            by_config[index].add(value)
        if all(len(found) == 1 for found in by_config.values()):
            key = tuple(sorted((index, next(iter(found))) for index, found in by_config.items()))
            if key in self.cache:
                return self.cache[key]
            texts, rows = self.candidates
            columns = [index for index, _ in key]
            wanted = numpy.array([value for _, value in key], dtype=float)
            fits = numpy.nonzero((rows[:, columns] == wanted).all(axis=1))[0] if len(texts) else []
            fitting = [texts[fit] for fit in fits]
            # A class writes its own number into a nested configuration, and a file may lack it or have an old one.
            own = {re.sub(r"[A-Za-z_]\w*\.(?=[A-Za-z_$])", "", text) for text in fitting[:1]}
            self.cache[key] = next((text for text in fitting if text in own), next(iter(fitting), None))
            return self.cache[key]
        for formula in self.layered:
            if all(self.evaluate(formula, index, layer) == value for index, layer, value in instances):
                return formula
        return None

    @functools.cached_property
    def layered(self):
        """The formulas whose values differ between layers."""
        lists = [key for key in self.keys if any(isinstance(found.get(key), list) and any(is_number(item) for item in found[key]) for found in self.flats)]
        scalars = [key for key in self.scalars if not key.startswith("len.")]
        found = []
        for key in lists:
            found += [key, f"2*{key}", f"3*{key}", f"4*{key}"]
            found += [f"{key}*{other}" for other in scalars if other.rpartition(".")[0] == key.rpartition(".")[0]]
        return found


@functools.cache
def code(formula):
    text = re.sub(r"len\(([\w.]+)\)", r"len.\1", formula)
    text = re.sub(r"([\w.]+)@(\d+)", r"at\2.\1", text)
    text = re.sub(r"(?<![\w.$])[A-Za-z$][\w$]*(\.[A-Za-z_]\w*)*", lambda name: f"get({name[0]!r})", text)
    return compile(text.replace("/", "//"), formula, "eval")


def shown(formula):
    return re.sub(r"len\.([\w.]+)", r"len(\1)", formula) if formula else formula


def modules_of(sample, alone=()):
    """Returns the modules with the shape of their weight, and those with a bias; a bias that is `alone` in any sample is a module."""
    tensors, buffers = sample["tensors"], set(sample["buffers"])
    modules, biases = {}, set()
    for name, shape in tensors.items():
        if re.search(r"(running_(mean|var)|num_batches_tracked)$", name):
            continue
        if name.endswith(".weight"):
            modules[name[:-7]] = shape
        elif name.endswith(".bias"):
            if name[:-4] + "weight" in tensors and name not in alone:
                biases.add(name[:-5])
            else:
                modules[name] = shape
        else:
            modules[name] = shape
    optional = {name.removesuffix(".weight") for name in buffers}
    return modules, biases, optional


def is_digit(part):
    return part.isdigit()


class Tree:
    """Decides which numbers in names are the elements of lists."""

    def __init__(self, samples):
        # The elements of each list (its pattern up to the number) in each sample and place.
        self.lists = collections.defaultdict(dict)
        self.homogeneous = {}
        inside = collections.defaultdict(lambda: collections.defaultdict(set))
        for index, names in enumerate(samples):
            for name in names:
                parts = name.split(".")
                ends = ["#" if is_digit(part) else part for part in parts]
                for at, part in enumerate(parts):
                    if is_digit(part):
                        key = ".".join(ends[: at + 1])
                        self.lists[key].setdefault((index, ".".join(parts[:at])), set()).add(int(part))
                        inside[key][index, ".".join(parts[:at]), int(part)].add(".".join(ends[at + 1 :]))
        self.literal = set()
        for key, found in self.lists.items():
            sets = {frozenset(numbers) for numbers in found.values()}
            kinds = {frozenset(kind) for kind in inside[key].values()}
            if len(sets) == 1 and len(next(iter(sets))) <= 8 and (len(kinds) > 1 or set(next(iter(sets))) != set(range(len(next(iter(sets)))))):
                self.literal.add(key)

    def pattern(self, name):
        """Returns a name with `#` in place of the numbers of lists, and those numbers."""
        parts, folded, places = name.split("."), [], []
        ends = ["#" if is_digit(part) else part for part in parts]
        for at, part in enumerate(parts):
            if is_digit(part) and ".".join(ends[: at + 1]) not in self.literal:
                folded.append("#")
                places.append(int(part))
            else:
                folded.append(part)
        return ".".join(folded), tuple(places)


def inside(parent, name):
    return f"{parent}.{name}" if parent else name


class Layout:
    def __init__(self, name, data):
        self.name = name
        samples = data["samples"]
        small = next(sample for sample in samples if not sample.get("same"))
        small = next((sample for sample in samples if sample["tag"] == "small"), small)
        self.samples = [{**small, "config": sample["config"], "tag": sample["tag"]} if sample.get("same") else sample for sample in samples]
        self.class_name = small["class"]
        self.values = Values([sample["config"] for sample in self.samples])
        prefix = small["prefix"] + "."
        heads = {name for sample in samples if not sample.get("same") for name in sample["head"]}
        every = [name for sample in samples if not sample.get("same") for name in sample["tensors"]]
        inner = [name for name in every if name not in heads]
        self.prefix = prefix if inner and all(name.startswith(prefix) for name in inner) else ""
        self.heads = {name.removesuffix(".weight") for name in heads}
        self.found = []
        alone = {name for sample in samples if not sample.get("same") for name in sample["tensors"] if name.endswith(".bias") and name[:-4] + "weight" not in sample["tensors"]}
        for sample in self.samples:
            modules, biases, optional = modules_of(sample, alone)
            self.found.append((modules, biases, optional))

    def strip(self, name):
        """Returns a name inside the base model; a name of the head begins with `^`."""
        if name in self.heads or name.removesuffix(".bias") in self.heads:
            return "^" + name
        return name.removeprefix(self.prefix)

    def tree(self, samples):
        return Tree(samples)

    def derive(self):
        distinct = {}
        for index, sample in enumerate(self.samples):
            distinct.setdefault(id(sample["tensors"]), index)
        stripped = [({self.strip(name): shape for name, shape in modules.items()}, {self.strip(name) for name in biases}, {self.strip(name) for name in optional}) for modules, biases, optional in self.found]
        tree = self.tree([modules for modules, _, _ in stripped])
        shapes, presence, biased, spare = collections.defaultdict(list), collections.defaultdict(set), collections.defaultdict(lambda: [0, 0]), set()
        elements = {("", index, ()): True for index in range(len(stripped))}
        list_numbers = collections.defaultdict(lambda: collections.defaultdict(set))
        for index, (modules, biases, optional) in enumerate(stripped):
            for name, shape in modules.items():
                pattern, places = tree.pattern(name)
                shapes[pattern].append((index, places, shape))
                count = biased[pattern]
                count[name in biases] += 1
                if name in optional:
                    spare.add(pattern)
                at = pattern
                if pattern.endswith("#"):
                    pass
                # Every list around the module is a part of the element around it.
                depth = pattern.count("#")
                # A list of modules without parts is one entry of the element around it.
                presence[pattern].add((index, places[:-1] if pattern.endswith("#") else places))
                ends = [found.end() for found in re.finditer("#", pattern)]
                for level, end in enumerate(ends):
                    path = pattern[:end]
                    list_numbers[path][index, places[:level]].add(places[level])
                    elements[path, index, places[: level + 1]] = True
                    if path != pattern:
                        presence[path].add((index, places[:level]))
        entries = {}
        # Lists.
        for path, found in list_numbers.items():
            instances = [(index, places[0] if places else None, len(numbers)) for (index, places), numbers in found.items()]
            starts = all(numbers == set(range(len(numbers))) for numbers in found.values())
            formula = self.values.find(instances) if starts else None
            entries[path] = {"kind": "list", "dims": [shown(formula) or ("_" if starts else "~")]}
        for pattern, found in shapes.items():
            if pattern in entries:  # a list of parameters
                entries[pattern]["parameters"] = True
                continue
            ranks = {len(shape) for _, _, shape in found}
            dims = ["_"]
            if len(ranks) == 1:
                dims = []
                for at in range(ranks.pop()):
                    instances = [(index, places[0] if places else None, shape[at]) for index, places, shape in found]
                    dims.append(shown(self.values.find(instances)) or "_")
            plain, with_bias = biased[pattern]
            entries[pattern] = {"kind": "module", "dims": dims, "bias": with_bias > 0 and plain == 0}
        self.add_stages(entries, list_numbers)
        # Presence: of the elements around an entry, in which of them is it?
        by_parent = collections.defaultdict(list)
        for (path, index, places) in elements:
            by_parent[path].append((index, places))
        self.atoms, self.choices, self.conditions = {}, [], {}
        groups = collections.defaultdict(list)
        for pattern, entry in entries.items():
            if entry["kind"] == "list":
                outer = parent_of(pattern[:-1].rstrip("."))
            else:
                outer = parent_of(pattern) if not pattern.endswith("#") else parent_of(pattern[:-1].rstrip("."))
            entry["parent"] = outer
            # The lists around a module are parts of the elements around them.
            where = frozenset(presence[pattern])
            everywhere = len(where) == len(by_parent[outer])
            entry["required"] = everywhere and pattern not in spare and not pattern.lstrip("^") in spare
            entry["spare"] = pattern in spare
            if not everywhere and pattern not in spare:
                groups[outer, where].append(pattern)
        letters = iter(string.ascii_letters + string.digits)
        sets = []
        for (outer, where), patterns in sorted(groups.items(), key=lambda item: min(item[1])):
            letter = next(letters, None)
            if letter is None:
                break
            condition = self.condition(by_parent[outer], where)
            if len(patterns) == 1 and condition is None:
                pass
            for pattern in patterns:
                entries[pattern]["atom"] = letter
            sets.append((letter, outer, where, condition))
            if condition:
                self.conditions[letter] = condition
        # Exactly one of several groups is in each element.
        without = [found for found in sets if not found[3]]
        for outer in dict.fromkeys(found[1] for found in without):
            found = [(letter, where) for letter, at, where, _ in without if at == outer]
            total = len(by_parent[outer])
            taken = set()
            for size in (2, 3, 4):
                for some in itertools.combinations(found, size):
                    if len(found) > 24 and size > 2 or len(found) > 12 and size > 3:
                        break
                    if any(letter in taken for letter, _ in some):
                        continue
                    if sum(len(where) for _, where in some) == total and len(frozenset().union(*(where for _, where in some))) == total:
                        self.choices.append("|".join(letter for letter, _ in some))
                        taken.update(letter for letter, _ in some)
        # A group of one entry says nothing unless a choice or condition needs it.
        named = set("".join(self.choices).replace("|", "")) | set(self.conditions)
        sizes = collections.Counter(entry.get("atom") for entry in entries.values())
        for entry in entries.values():
            letter = entry.get("atom")
            if letter and letter not in named and sizes[letter] == 1:
                del entry["atom"]
        self.entries = entries
        self.list_instances = {path: [(index, places[0] if places else None, len(numbers)) for (index, places), numbers in found.items()] for path, found in list_numbers.items()}
        self.shape_instances = {pattern: [(index, places[0] if places else None, shape) for index, places, shape in found] for pattern, found in shapes.items()}
        self.rename()
        return self

    def add_stages(self, entries, list_numbers):
        """Adds the lengths that no sample changes alone, because other keys must fit: the number of stages, and the layers of a
        numbered stage. A list in the configuration has an entry for each stage."""
        flats = self.values.flats
        lengths = {path: [(index, len(numbers)) for (index, _), numbers in found.items()] for path, found in list_numbers.items()}
        unknown = [path for path, entry in entries.items() if entry["kind"] == "list" and entry["dims"] == ["_"]]
        lists = [key for key in self.values.keys if any(isinstance(found.get(key), list) and found[key] and all(map(is_number, found[key])) for found in flats)]
        stages = collections.defaultdict(dict)
        for path in unknown:
            inner = {entries[other]["dims"][0] for other in entries if other.startswith(path + ".") and other.endswith("#") and other.count("#") == path.count("#") + 1 and entries[other]["kind"] == "list"}
            for key in sorted(inner & set(lists)):
                if all(len(flats[index].get(key) or ()) == length for index, length in lengths[path]):
                    entries[path]["dims"] = [f"len({key})"]
            if len(number := re.findall(r"(?<=\.)\d+(?=\.)", path)) == 1:
                stages[re.sub(r"(?<=\.)\d+(?=\.)", "*", path)][int(number[0])] = path
        for paths in stages.values():
            # The first entry of a list is changed alone.
            if len(paths) < 2 or all(len({length for _, length in lengths[path]}) == 1 for path in paths.values()):
                continue
            for key, place in itertools.product(lists, (lambda number: number, lambda number: number - 1, lambda number: number // 2)):
                formulas = {path: f"{key}@{place(number)}" for number, path in paths.items()}
                if min(map(place, paths)) >= 0 and all(self.values.evaluate(formulas[path], index) == length for path in formulas for index, length in lengths[path]):
                    for path, formula in formulas.items():
                        entries[path]["dims"] = [formula]
                    break

    def rename(self):
        """Gives the groups of each parent letters in the order of their first entries."""
        order = {}
        for pattern in sorted(self.entries):
            entry = self.entries[pattern]
            if letter := entry.get("atom"):
                known = order.setdefault(entry["parent"], {})
                known.setdefault(letter, (string.ascii_letters + string.digits)[len(known)])
        letters = {old: (parent, new) for parent, known in order.items() for old, new in known.items()}
        for entry in self.entries.values():
            if "atom" in entry:
                entry["atom"] = letters[entry["atom"]][1]
        found = collections.defaultdict(list)
        for choice in self.choices:
            parents = {letters[letter][0] for letter in choice.split("|")}
            found[parents.pop()].append("|".join(sorted(letters[letter][1] for letter in choice.split("|"))))
        self.choices = {parent: sorted(choices) for parent, choices in found.items()}
        self.conditions = {letters[letter]: condition for letter, condition in self.conditions.items() if letter in letters}

    def condition(self, elements, where):
        """Returns a formula that is not 0 exactly where a group is present."""
        is_layered = any(places for _, places in elements)
        wanted = [((index, places[0] if places else None), (index, places) in where) for index, places in elements]
        flats = self.values.flats
        default = flats[0]

        def holds(test):
            try:
                return all(bool(test(flats[index], layer)) == present for (index, layer), present in wanted)
            except (TypeError, KeyError, IndexError, ZeroDivisionError):
                return False

        keys = [key for key in self.values.keys if not re.search(r"(^|\.)(output_|return_|use_cache|is_encoder_decoder|gradient|torchscript|chunk)", key)]
        for key in keys:
            values = [found.get(key) for found in flats]
            if any(isinstance(value, bool) for value in values):
                usual = default.get(key)
                for negated in (False, True):
                    if holds(lambda found, layer: bool(found.get(key)) != negated):
                        text = f"{key}==0" if negated else key
                        return f"{text}|{int(bool(usual) != negated)}" if isinstance(usual, bool) else text
        for key in self.values.keys:
            values = [found.get(key) for found in flats]
            if any(value is None for value in values) and any(value is not None for value in values):
                for negated in (False, True):
                    if holds(lambda found, layer: (found.get(key) not in (None, [])) != negated):
                        return f"has({key})==0" if negated else f"has({key})"
        for key in self.values.scalars:
            if key.startswith("len.") or "chunk_size" in key:
                continue
            tests = [(f"{key}>=1", lambda found, layer: found[key] >= 1), (f"{key}==0", lambda found, layer: found[key] == 0), (f"{key}==1", lambda found, layer: found[key] == 1), (f"{key}>=2", lambda found, layer: found[key] >= 2)]
            if is_layered:
                tests += [(f"layer>={key}", lambda found, layer: layer >= found[key]), (f"layer<{key}", lambda found, layer: layer < found[key]),
                          (f"layer%{key}==0", lambda found, layer: layer % found[key] == 0), (f"(layer+1)%{key}==0", lambda found, layer: (layer + 1) % found[key] == 0),
                          (f"layer%{key}>=1", lambda found, layer: layer % found[key] >= 1), (f"(layer+1)%{key}>=1", lambda found, layer: (layer + 1) % found[key] >= 1)]
            for text, test in tests:
                if holds(test):
                    return text
        if is_layered:
            for key in self.values.keys:
                if any(isinstance(found.get(key), list) for found in flats):
                    for text, test in ((f"in({key},layer)", lambda found, layer: layer in found[key]), (f"in({key},layer)==0", lambda found, layer: layer not in found[key])):
                        if holds(test):
                            return text
        return None

    def words(self):
        """Returns the entries as in the table."""
        found = {}
        for pattern, entry in self.entries.items():
            flags = "-" * (not entry["required"] and "atom" not in entry) + "+" * bool(entry.get("bias"))
            dims = ",".join(entry["dims"]) or "_"
            atom = f"{entry['atom']}:" if "atom" in entry else ""
            found[pattern] = flags + atom + dims
        for parent, choices in self.choices.items():
            found[inside(parent, "?")] = ",".join(choices)
        for (parent, letter), condition in self.conditions.items():
            found[inside(parent, f"?{letter}")] = condition
        return found


SUFFIX = re.compile(r"(For[A-Z]\w*|LMHeadModel|DoubleHeadsModel|Model)$")


def nested(config, at=()):
    """Yields the paths of nested models with their `model_type`."""
    for key, value in config.items():
        if isinstance(value, dict) and isinstance(value.get("model_type"), str):
            yield (*at, key), value["model_type"]


class Included:
    """A comparison of a nested model with the layout of its architecture."""

    def __init__(self, layout, path, inner_words, corrected):
        self.layout, self.path, self.words, self.corrected = layout, path, inner_words, corrected
        configs = []
        for sample in layout.samples:
            config = sample["config"]
            for key in path:
                config = config.get(key) or {}
            configs.append(config if isinstance(config, dict) else {})
        self.values = Values(configs)

    def prefixes(self):
        """Returns the prefixes under which most patterns of the nested model are found."""
        inner = sorted(key for key in self.words.keys() | self.corrected if not (key.startswith("^") or is_rule(key)))
        found = collections.Counter()
        for pattern in self.layout.entries:
            for name in inner:
                if pattern == name or pattern.endswith("." + name):
                    found[pattern[: len(pattern) - len(name)]] += 1
        return [(prefix, count) for prefix, count in found.most_common(8) if prefix and count >= max(4, len(self.words) / 2)]

    def differing(self, prefix, own):
        """Returns the entries of the layout under a prefix that the nested layout has not, or has otherwise."""
        other = {}
        for name, text in self.words.items():
            # The samples of this layout know no more than those of the nested one, which were corrected.
            if name.startswith("^") or is_rule(name) or name in self.corrected:
                continue
            pattern = prefix + name
            if pattern not in own:
                other[pattern] = ""
                continue
            if not self.agrees(pattern, text):
                other[pattern] = own[pattern]
        return other

    def agrees(self, pattern, text):
        flags, group, dims, _ = parse(text)
        entry = self.layout.entries[pattern]
        is_required = "-" not in flags and not group
        if is_required != entry["required"] and not group:
            return False
        if ("+" in flags) and not entry.get("bias"):
            return False
        if entry["kind"] == "list":
            instances = self.layout.list_instances[pattern]
        else:
            instances = self.layout.shape_instances[pattern]
            if len(entry["dims"]) != len(dims) and dims != ["_"]:
                return False
        for at, formula in enumerate(dims):
            if formula in ("_", "~"):
                # What the nested layout cannot say and this one can.
                if entry["dims"][at : at + 1] not in ([], ["_"], ["~"]):
                    return False
                continue
            for index, layer, value in instances:
                value = value if isinstance(value, int) else value[at]
                found = self.values.evaluate(formula, index, layer)
                if found != value:
                    return False
        return True


FIXTURES = ROOT / "fixtures" / "moe"
CORRECTIONS, MARK, EXCEPTIONS = pathlib.Path(__file__).with_name("layout_corrections.txt").read_text().partition("# Exceptions of all architectures.")


def add_fixtures(name, data):
    """Adds the checkpoints with other numbers that `moe.py` wrote."""
    first = next(sample for sample in data["samples"] if not sample.get("same"))
    for path in sorted(FIXTURES.glob("*.json")):
        fixture = json.loads(path.read_text())
        config = fixture.get("config") or {}
        if config.get("model_type") != name or "tensors" not in fixture or not fixture.get("written_by", "").startswith("transformers"):
            continue
        original = FIXTURES / f"{path.stem}-original.json"
        if original.exists():
            continue
        tensors = {tensor["name"]: tensor["shape"] for tensor in fixture["tensors"]}
        known = {name for sample in data["samples"] if not sample.get("same") for name in sample["tensors"]}
        if len(known & set(tensors)) * 2 < len(tensors):
            continue
        data["samples"].append({**first, "tag": f"fixture {path.stem}", "config": config, "tensors": tensors})


def corrections(name):
    """Returns the paths and values of the corrections of an architecture."""
    lines = [line.split() for line in CORRECTIONS.splitlines() if line and not line.startswith("# ")]
    return [(path, value) for patterns, path, value in lines if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split(","))]


def copies():
    """Yields the architectures that the corrections add, with the architecture whose modules they have."""
    for line in CORRECTIONS.splitlines():
        names, _, source = line.partition(" < ")
        if source and not line.startswith("# "):
            yield from ((name, source) for name in names.split(","))


def correct(words, name):
    """Applies what the samples do not show."""
    for path, value in corrections(name):
        if path == "<":
            continue
        found = [key for key in words if fnmatch.fnmatchcase(key, path) and not is_rule(key)]
        # A path without stars, or of a nested model, is added if no sample has it.
        for key in found or [path] * ("*" not in path.removesuffix(".*")):
            if value == "none":
                words.pop(key, None)
                continue
            if not value.startswith("?"):
                words[key] = value
                continue
            flags, group, dims, _ = parse(words[key])
            rule, _, condition = value.partition("=")
            words[key] = f"{flags.replace('-', '')}{rule[1:]}:{','.join(dims)}"
            words[f"{parent_of(key)}.{rule}".lstrip(".")] = condition
    return words


def main():
    folder, target, *names = sys.argv[1:]
    if folder == "--exceptions":
        table = pathlib.Path(target)
        table.write_text(table.read_text().partition(MARK)[0] + MARK + EXCEPTIONS)
        return
    layouts, words, corrected, versions = {}, {}, {}, set()
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        if names and path.stem not in names or ("*", "none") in corrections(path.stem):
            continue
        data = json.loads(path.read_text())
        versions |= {sample["config"]["transformers_version"] for sample in data["samples"]}
        if sum("tensors" in sample for sample in data["samples"]) > 1:
            add_fixtures(path.stem, data)
            layout = Layout(path.stem, data).derive()
            seen, found = layout.words(), correct(layout.words(), path.stem)
            layouts[path.stem], words[path.stem] = layout, found
            corrected[path.stem] = {key for key in seen | found if seen.get(key) != found.get(key)}
    for name, layout in layouts.items():
        if any(key.startswith("^") for key in words[name]):
            found = SUFFIX.search(layout.class_name)
            words[name].setdefault("@", found[0] if found else layout.class_name)
        if layout.prefix:
            words[name].setdefault("~", layout.prefix)
    for name, source in copies():
        words[name] = correct(dict(words[source]), name)
    # Nested models.
    plain = {name: dict(found) for name, found in words.items()}
    for name, layout in layouts.items():
        own = words[name]
        for path, kind in nested(layout.samples[0]["config"]):
            if kind not in plain or kind == name:
                continue
            included = Included(layout, path, plain[kind], corrected.get(kind, set()))
            known = plain[kind].keys() | corrected.get(kind, set())
            best = None
            for prefix, _ in included.prefixes():
                taken = {key for key in own if key.startswith(prefix) and key[len(prefix):] in known}
                other = included.differing(prefix, own)
                # The rules about groups belong to the nested layout.
                if any(parse(plain[kind].get(key[len(prefix):], ""))[1] for key in other):
                    continue
                saved = size({key: own[key] for key in taken if key not in other}) - size({key: "" for key, text in other.items() if not text})
                if best is None or saved > best[0]:
                    best = saved, prefix, other, taken
            if best and best[0] > 100:
                saved, prefix, other, taken = best
                kept = {key: text for key, text in own.items() if key not in taken or key in other}
                kept.update({key: "" for key, text in other.items() if not text})
                kept[f"{prefix}*"] = ".".join(path)
                own = kept
        # Conditions and choices of groups without entries.
        groups = {(parent_of(key), parse(text)[1]) for key, text in own.items() if not is_rule(key)}
        groups |= {(parent_of(key[:-1]), parse(text)[1]) for key, text in own.items() if not is_rule(key) and key.endswith("#")}
        for key in [key for key in own if is_rule(key) and "?" in key]:
            parent, letter = parent_of(key), key.rpartition("?")[2]
            if letter:
                if (parent, letter) not in groups:
                    del own[key]
                continue
            choices = [choice for choice in own[key].split(",") if all((parent, letter) in groups for letter in choice.split("|"))]
            own[key] = ",".join(choices)
            if not choices:
                del own[key]
        words[name] = own
    lines = [*layout_blocks.HEADER.format(version=versions.pop()).splitlines(), *layout_blocks.write(words)]
    assert not versions, "The samples are of several versions."
    pathlib.Path(target).write_text("\n".join(lines) + f"\n\n{MARK}{EXCEPTIONS}")
    print(len(layouts), "architectures,", sum(map(len, lines)) + len(lines), "bytes,", len(lines), "lines")


if __name__ == "__main__":
    main()
