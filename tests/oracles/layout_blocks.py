"""Writes layouts as a text that people read: `architectures/layouts.txt` and `architectures/gguf_layouts.txt`.

Layouts that differ little from another one state the differences, and blocks of modules that are equal in several
layouts are written once. The order of `KNOWN` decides which layout is the original. The same layouts always give the
same text.
"""

import collections
import functools
import re

# The architectures that readers know, from which others are explained.
KNOWN = [
    "llama", "bert", "qwen2", "qwen3", "mistral", "gpt2", "t5", "bart", "vit", "clip", "siglip", "wav2vec2", "whisper", "qwen2_moe", "qwen3_moe", "mixtral", "deepseek_v3", "gemma2", "gemma3_text", "roberta", "deberta-v2",
    "electra", "gpt_neox", "phi3", "swin", "detr", "convnext", "resnet", "qwen2_vl", "qwen2_5_vl", "llava", "sam", "mamba", "gguf:llama", "gguf:qwen2", "gguf:bert", "gguf:gemma",
]
HEADER = """\
# The modules of the architectures of transformers {version}, one a line, with the sides of their weights. Written by
# tests/oracles/layouts.py from the model classes, and by hand only in layout_corrections.txt.
#
#   architecture NAMES           a layout, and `block NAME` modules that several layouts contain
#   like NAME                    the lines of another layout, unless this one has the path
#   class END, prefix PATH       the end of the name of the class with the head, and what its files have before the names
#   PATH [SIDES]                 a module. `#` stands for a number, `_` for an unknown side; `^` begins a part of the head
#   PATH.# count NUMBER          a list, `count _` of unknown length, or `count ~` if its numbers have gaps
#   ... with bias | optional     a module that always has a bias, one that may be missing
#   ... if CONDITION             a module of the models for which a formula over the configuration is not 0
#   ... in group A               modules that are stored together. `group A if CONDITION`, `one group of A|B`
#   PATH from KEY                modules whose formulas are over the keys of the nested model `KEY`
#   PATH as NAME                 the modules of a block
#   PATH.* model KEY             the layout of the architecture that the nested model `KEY` states, without its head
#   ... none                     a module that the layout after `like` has, and this one lacks
#
# `architectures/architecture.rs` explains formulas. $hidden, $heads and $layers are the keys of that meaning.
# Exceptions follow the last layout."""


def rank(name):
    return (KNOWN.index(name) if name in KNOWN else len(KNOWN), name)


def is_rule(key):
    return key in ("@", "~") or re.search(r"(^|\.)\?\w?$", key) is not None


def parent_of(pattern):
    """Returns the innermost list around a pattern, or the empty text."""
    return pattern[: pattern.rfind("#") + 1] if "#" in pattern else ""


def parse(text):
    """Returns the flags, the group, the sides and the condition of an entry."""
    text, _, condition = text.partition(";")
    flags = re.match(r"[+-]*", text)[0]
    rest = text[len(flags):]
    group, _, sides = rest.rpartition(":") if re.match(r"[A-Za-z0-9]:", rest) else ("", "", rest)
    return flags, group, sides.split(","), condition


def with_conditions(words):
    """Returns words whose modules state the conditions of their groups, unless a choice needs the group."""
    words = dict(words)
    rules = {(parent_of(key), key.rpartition("?")[2]): key for key in words if is_rule(key) and key not in "@~"}
    chosen = {(parent, letter) for (parent, _), key in rules.items() if key.endswith("?") for choice in words[key].split(",") for letter in choice.split("|")}
    seen = set()
    for (parent, letter), key in rules.items():
        condition = words[key]
        if not letter or (parent, letter) in chosen or (parent, condition) in seen:
            continue
        seen.add((parent, condition))
        del words[key]
        for path, value in words.items():
            if is_rule(path) or path.endswith("*") or (parent_of(path.removesuffix("#").rstrip(".")) if path.endswith("#") else parent_of(path)) != parent:
                continue
            flags, group, sides, _ = parse(value)
            if group == letter:
                words[path] = f"{flags}{','.join(sides)};{condition}"
    return words


FUNCTIONS = {"has", "len", "in", "layer", "min", "count", "is", "starts", "sum"}


def keys_in(value):
    """Returns the keys in the formulas of a value."""
    _, _, sides, condition = parse(value)
    return {name for text in [*sides, condition] for name in re.findall(r"[A-Za-z$_][\w$]*(?:\.[A-Za-z_]\w*)*", text) if name not in FUNCTIONS and name != "_"}


def size(words):
    return sum(len(key) + len(text) + 2 for key, text in words.items())


class Node:
    """A segment of paths, with the values of the paths that end in it."""

    def __init__(self):
        self.children, self.values, self.scope, self.base = {}, {}, "", ""

    def insert(self, parts, value):
        if len(parts) == 1:
            self.values[parts[0]] = value
        else:
            self.children.setdefault(parts[0], Node()).insert(parts[1:], value)

    def flat(self, prefix=""):
        """Yields the paths with their values; a path has the scope of its block."""
        for key, value in self.values.items():
            yield prefix + key, value
        for key, child in self.children.items():
            yield from child.flat(f"{prefix}{key}." + (f"{child.scope}|" if child.scope else ""))

    def insert_scoped(self, path, value):
        """Inserts a path as from `flat`."""
        key, dot, rest = path.partition(".")
        if not dot:
            self.values[key] = value
            return
        child = self.children.setdefault(key, Node())
        scope, mark, inner = rest.partition("|")
        if mark and "." not in scope:
            if not child.children and not child.values:
                child.scope = scope
            assert child.scope == scope, path
            rest = inner
        child.insert_scoped(rest, value)

    def keys(self):
        found = set()
        for key, value in self.values.items():
            if key == "*":
                found.add("outer")
            elif key not in ("@", "~", "?"):
                found |= keys_in(value)
        for child in self.children.values():
            found |= child.keys()
        return found

    def strip(self, scope):
        fix = lambda value: re.sub(r"(?<![\w.$])hidden_size\b", "$hidden", re.sub(r"(?<![\w.$])" + re.escape(scope) + r"\.", "", value))
        self.values = {key: fix(value) if key not in ("@", "~", "?") else value for key, value in self.values.items()}
        for child in self.children.values():
            child.strip(scope)

    def scopes(self):
        """Gives the largest subtrees whose formulas have the keys of one nested model a scope."""
        found = self.keys()
        outer = {key.split(".")[0] if "." in key else "" for key in found}
        if len(outer) == 1 and "" not in outer and len(self.text) > 40:
            self.scope = outer.pop()
            self.strip(self.scope)
        for child in self.children.values():
            child.scopes()
        self.__dict__.pop("text", None)

    @functools.cached_property
    def text(self):
        """The words of the subtree, by which it is compared with others."""
        words = [f"{key}={value}" for key, value in sorted(self.values.items())]
        words += [f"{key}.{child.scope}|{{{child.text}}}" for key, child in sorted(self.children.items())]
        return " ".join([*words, self.base])

    @functools.cached_property
    def count(self):
        """The number of lines."""
        return len(self.values.keys() | self.children.keys()) + sum(child.count for child in self.children.values())

    def subtrees(self, path=""):
        for key, child in self.children.items():
            yield f"{path}{key}", child
            yield from child.subtrees(f"{path}{key}.")

    def lines(self, names, used, depth=1):
        """Yields the lines of the subtree, and counts the blocks that it uses."""
        pad = "  " * depth
        if self.base:
            yield f"{pad}like {self.base}"
        for key in sorted(filter(is_rule, self.values), key=lambda key: ("@~".find(key) < 0, key)):
            yield pad + shown_rule(key, self.values[key])
        for key in sorted(key for key in self.values.keys() | self.children.keys() if not is_rule(key)):
            path, value, child = key, self.values.get(key), self.children.get(key)
            # A chain of segments is one path.
            while value is None and not child.scope and child.text not in names:
                inner = child.values.keys() | child.children.keys()
                if len(inner) > 1 or is_rule(key := next(iter(inner))):
                    break
                path, value, child = f"{path}.{key}", child.values.get(key), child.children.get(key)
            assert path not in ("like", "class", "prefix", "group", "one"), path
            line = pad + path + ("" if value is None else " " + shown(path, value))
            if child is None:
                yield line
                continue
            line += f" from {child.scope}" if child.scope else ""
            if block := names.get(child.text):
                used[block] += 1
                yield f"{line} as {block}"
            else:
                yield line
                yield from child.lines(names, used, depth + 1)


def shown_rule(key, value):
    word = {"@": "class", "~": "prefix", "?": "one group of"}.get(key)
    if not value:
        return f"{word or 'group ' + key[1:]} none"
    return f"{word} {value}" if word else f"group {key[1:]} if {value}"


def shown(path, value):
    if not value:
        return "none"
    if path.endswith("*"):
        return f"model {value}"
    flags, group, sides, condition = parse(value)
    words = [f"count {','.join(sides)}" if path.endswith("#") else f"[{', '.join(sides)}]"]
    words += ["with bias"] * ("+" in flags) + ["optional"] * ("-" in flags)
    words += [f"in group {group}"] * bool(group) + [f"if {condition}"] * bool(condition)
    return " ".join(words)


def like(roots, words):
    """Finds the layouts that are equal to another one or differ little from it."""
    flats, bases, seen = {}, {}, {}
    for name, root in sorted(roots.items(), key=lambda item: rank(item[0])):
        mine = dict(root.flat())
        key = tuple(sorted(mine.items()))
        if key in seen:
            bases[name] = ("=", seen[key])
            continue
        seen[key] = name
        best = (0.6 * size(mine), None)
        for other, its in flats.items():
            cost = size({path: text for path, text in mine.items() if its.get(path) != text}) + size({path: "" for path in its if path not in mine})
            if cost < best[0]:
                best = cost, other
        flats[name] = mine
        if best[1]:
            bases[name] = ("<", best[1])
    for name, (kind, base) in bases.items():
        if kind == "<":
            mine, its = flats[name], flats[base]
            root = Node()
            changed = {path: text for path, text in mine.items() if its.get(path) != text}
            changed.update((path, "") for path in its if path not in mine)
            if len({re.sub(r"\w+\|", "", path) for path in changed}) < len(changed):
                continue  # A path has another scope there.
            try:
                for path, text in changed.items():
                    root.insert_scoped(path, text)
            except AssertionError:  # The blocks have different scopes.
                continue
            root.base = base
            roots[name] = root
    same = collections.defaultdict(list)
    for name in roots:
        kind, base = bases.get(name, ("", name))
        same[base if kind == "=" else name].append(name)
    return same


def blocks(roots, names_of):
    """Returns the names of the subtrees that several layouts contain, by their texts."""
    found, nodes = collections.defaultdict(list), {}
    for name in names_of:
        for path, node in roots[name].subtrees():
            if any(node.flat()) and node.count >= 3:
                found[node.text].append((bool(roots[name].base), rank(name), path))
                nodes[node.text] = node
    names = {}
    for text, places in found.items():
        if len(places) > 1:
            is_change, (_, name), path = min(places)
            names[text] = f"{name}.{path}" + ".changes" * is_change
    # A block that only a larger one uses is written there.
    while True:
        used = collections.Counter()
        for name in names_of:
            collections.deque(roots[name].lines(names, used), maxlen=0)
        for text in names:
            collections.deque(nodes[text].lines(names, used), maxlen=0)
        kept = {text: name for text, name in names.items() if used[name] > 1}
        if len(kept) == len(names):
            return names, nodes
        names = kept


def write(words, is_nested=True):
    """Returns the lines of the text, without the header."""
    roots = {}
    for name, found in words.items():
        roots[name] = Node()
        for key, value in with_conditions(found).items():
            roots[name].insert(key.split("."), value)
        for child in roots[name].children.values() if is_nested else ():
            child.scopes()
    same = like(roots, words)
    names, nodes = blocks(roots, same)
    lines, used = [], collections.Counter()
    for text, name in sorted(names.items(), key=lambda item: item[1]):
        lines += ["", f"block {name}", *nodes[text].lines(names, used)]
    for first, others in sorted(same.items()):
        lines += ["", f"architecture {', '.join(others)}", *roots[first].lines(names, used)]
    return lines
