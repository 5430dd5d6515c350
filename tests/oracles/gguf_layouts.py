#!/usr/bin/env python3
"""Derives `architectures/gguf_layouts.txt` from the source of llama.cpp.

    tests/oracles/gguf_layouts.py SOURCE TABLE

Executes `load_hparams`, `load_arch_hparams` and `load_arch_tensors` of each architecture with formulas in place of numbers.
Both branches of a condition are executed. A tensor of one branch belongs to a group that is stored if the condition holds,
or, if the condition is not a formula, that is stored as a whole. A number without a formula is `_`.
Keys that must exist are lines of the kind `keys`. A second run writes the same table. `architectures/blueprint.rs` explains its format.
"""

import collections
import itertools
import pathlib
import re
import string
import sys

import layout_blocks

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'.\'|\d[\w.]*|[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*|->|\+\+|--|<<|>>|[=!<>+*/|&^%-]=|&&|\|\||[^\s]')
TYPES = set("auto bool int int32_t int64_t uint32_t uint64_t size_t float double ggml_tensor std::string llm_tensor llama_token norm attn".split())
LAYER = "layer"
# A name that no configuration has, so that a formula has no value.
NONE = "none"


class Tensor:
    def __init__(self, name, is_optional):
        self.name, self.is_optional = name, is_optional


class Flags(dict):
    """The flags of a tensor, each with the condition under which it is set."""


class Function:
    def __init__(self, parameters, body):
        self.parameters, self.body = parameters, body


class Stop(Exception):
    """The end of a block: `throw`, `return` or `continue`."""

    def __init__(self, kind, value=None):
        self.kind, self.value = kind, value


def is_number(value):
    return isinstance(value, (int, str))


def is_closed(text):
    """Returns whether a text is a name, a call, or in parentheses."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and not re.match(r"[\w.$]", char) and at < len(text) - 1:
            return False
    return True


def operand(value):
    return str(value) if is_closed(str(value)) else f"({value})"


def binary(symbol, left, right):
    """Returns a formula, which is folded if both sides are numbers."""
    if not is_number(left) or not is_number(right):
        return None
    if isinstance(left, int) and isinstance(right, int):
        operations = {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right, "/": lambda: left // right if right else None, "%": lambda: left % right if right else None, "==": lambda: int(left == right), "<": lambda: int(left < right), ">=": lambda: int(left >= right)}
        return operations[symbol]()
    if symbol == "*" and 1 in (left, right):
        return right if left == 1 else left
    if symbol in "+-" and right == 0 or symbol == "/" and right == 1:
        return left
    return f"{operand(left)}{symbol}{operand(right)}"


def negation(value):
    """Returns the opposite of a condition, which holds if its value is not 0."""
    if not is_number(value) or isinstance(value, int):
        return int(value == 0) if isinstance(value, int) else None
    inner = value.removesuffix("==0")
    return inner if inner != value and is_closed(inner) else f"{operand(value)}==0"


def depends_on_layer(value):
    return bool(re.search(rf"\b{LAYER}\b", str(value)))


def choice(condition, first, second):
    """Returns the value that a condition selects."""
    if isinstance(condition, int):
        return first if condition else second
    if repr(first) == repr(second):
        return first
    if isinstance(first, Flags) or isinstance(second, Flags):
        sides = [side if isinstance(side, Flags) else Flags() for side in (first, second)]
        pick = lambda flag: choice(condition, sides[0].get(flag, 0), sides[1].get(flag, 0))
        return Flags({flag: pick(flag) for flag in [*sides[0], *sides[1]]})
    if condition is None or not is_number(first) or not is_number(second):
        return None
    return f"({operand(condition)}?{operand(first)}:{operand(second)})"


def either(left, right):
    if 1 in (left, right):
        return 1
    return right if left == 0 else left if right == 0 else binary("+", left, right)


def both(left, right):
    if 0 in (left, right):
        return 0
    return right if left == 1 else left if right == 1 else binary("*", left, right)


class Parser:
    """Parses the part of C++ that the functions use into tuples."""

    def __init__(self, text):
        self.tokens = TOKEN.findall(re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S))
        self.at = 0

    def peek(self, offset=0):
        return self.tokens[self.at + offset] if self.at + offset < len(self.tokens) else ""

    def take(self, token):
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def need(self, token):
        if not self.take(token):
            raise SyntaxError(f"{token} expected: {' '.join(self.tokens[self.at : self.at + 12])}")

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def block(self):
        """Returns the statements up to the closing brace."""
        found = []
        while self.at < len(self.tokens) and not self.take("}"):
            found.append(self.statement())
        return found

    def statement(self):
        start = self.at
        try:
            return self.try_statement()
        except (SyntaxError, IndexError):
            self.at = start
            return self.skip()

    def skip(self):
        """Skips a statement that is not understood."""
        start, depth = self.at, 0
        while self.at < len(self.tokens):
            token = self.next()
            depth += (token in "({[") - (token in ")}]")
            if depth <= 0 and token in (";", "}"):
                break
        return ("unknown", " ".join(self.tokens[start : self.at]))

    def body(self):
        return self.block() if self.take("{") else [self.statement()]

    def try_statement(self):
        if self.take("{"):
            return ("block", self.block())
        if self.take(";"):
            return ("block", [])
        if self.take("if"):
            self.need("(")
            before = []
            if declared := self.declaration():
                before = [declared]
                condition = self.expression() if self.take(";") else ("name", declared[1])
            else:
                condition = self.expression()
            self.need(")")
            then = self.body()
            return ("block", [*before, ("if", condition, then, self.body() if self.take("else") else [])])
        if self.take("for"):
            self.need("(")
            declared = self.declaration()
            if not declared or self.peek() == ":":
                while self.next() != ")":
                    pass
                return ("if", ("unknown", "for"), self.body(), [])
            self.need(";")
            condition = self.expression()
            self.need(";")
            self.expression()
            self.need(")")
            return ("for", declared[1], declared[2], condition, self.body())
        if self.take("switch"):
            self.need("(")
            self.expression()
            self.need(")")
            return ("if", ("unknown", "switch"), self.body(), [])
        if self.peek() in ("case", "default"):
            while self.next() != ":":
                pass
            return ("block", [])
        if self.take("try"):
            body = self.body()
            while self.next() != ")":
                pass
            return ("try", body, self.body())
        if self.peek() in ("return", "throw", "continue", "break", "GGML_ABORT"):
            kind = self.next()
            value = None if self.peek() == ";" or kind in ("throw", "GGML_ABORT") else self.expression()
            self.skip()
            return (kind, value)
        if declared := self.declaration():
            self.need(";")
            return declared
        value = self.expression()
        self.need(";")
        return ("expression", value)

    def declaration(self):
        """Parses `const type * name = value` up to its end."""
        start = self.at
        self.take("const")
        self.take("struct")
        if self.peek() not in TYPES:
            self.at = start
            return None
        self.next()
        while self.peek() in ("*", "&", "const"):
            self.next()
        if not re.fullmatch(r"[A-Za-z_]\w*", self.peek()) or self.peek(1) not in ("=", ";", ":", "{"):
            self.at = start
            return None
        name = self.next()
        value = None
        if self.take("="):
            value = self.expression()
        elif self.peek() == "{":
            value = self.atom()
        return ("declare", name, value)

    LEVELS = [["||"], ["&&"], ["|"], ["&"], ["==", "!="], ["<", ">", "<=", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]]

    def expression(self):
        left = self.ternary()
        if self.peek() in ("=", "|=", "+=", "-=", "*=", "/="):
            symbol = self.next()
            return ("assign", symbol, left, self.expression())
        return left

    def ternary(self):
        condition = self.level(0)
        if not self.take("?"):
            return condition
        first = self.expression()
        self.need(":")
        return ("choice", condition, first, self.expression())

    def level(self, number):
        if number == len(self.LEVELS):
            return self.unary()
        left = self.level(number + 1)
        while self.peek() in self.LEVELS[number]:
            symbol = self.next()
            left = ("binary", symbol, left, self.level(number + 1))
        return left

    def unary(self):
        if self.peek() in ("!", "-", "*", "&", "++", "--"):
            symbol = self.next()
            return ("unary", symbol, self.unary())
        if self.peek() == "(" and self.peek(1) in TYPES | {"long"}:
            while self.next() != ")":
                pass
            return self.unary()
        return self.postfix(self.atom())

    def atom(self):
        token = self.next()
        if token == "(":
            value = self.expression()
            self.need(")")
            return value
        if token == "{":
            return ("list", self.arguments("}"))
        if token == "[":
            self.need("&")
            self.need("]")
            self.need("(")
            parameters, last = [], None
            while not self.take(")"):
                token = self.next()
                if token == "=":
                    default = self.expression()
                    parameters[-1:] = [(last, default)]
                elif self.peek() in (",", ")", "="):
                    last = token
                    parameters.append((token, None))
            self.need("{")
            return ("lambda", parameters, self.block())
        if token == "static_cast":
            self.need("<")
            while self.next() != ">":
                pass
            return self.atom()
        if token.startswith('"'):
            while self.peek().startswith('"'):
                self.next()
            return ("text", token[1:-1])
        if re.match(r"\d", token):
            return ("number", int(token.rstrip("uUlL"), 0) if re.fullmatch(r"\d+[uUlL]*", token) else None)
        if re.match(r"[A-Za-z_]", token):
            return ("name", token)
        raise SyntaxError(token)

    def arguments(self, end):
        found = []
        while not self.take(end):
            found.append(self.expression())
            if not self.take(","):
                self.need(end)
                break
        return found

    def postfix(self, value):
        while True:
            if self.take("("):
                value = ("call", value, self.arguments(")"))
            elif self.take("["):
                index = self.expression()
                self.need("]")
                value = ("index", value, index)
            elif self.take(".") or self.take("->"):
                name = self.next()
                value = ("name", f"{value[1]}.{name}") if value[0] == "name" else ("member", value, name)
            elif self.peek() in ("++", "--"):
                self.next()
            else:
                return value


class Source:
    """The functions and names of llama.cpp."""

    def __init__(self, folder):
        self.texts = {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*")) if path.suffix in (".cpp", ".h") and "/unicode" not in path.as_posix()}
        arch, model = self.texts["llama-arch.cpp"], self.texts["llama-model.cpp"]
        pairs = lambda name: dict(re.findall(r'\{\s*(\w+)\s*,\s*"([^"]*)"\s*\}', re.search(rf"{name} = \{{(.*?)\n\}};", arch, re.S)[1]))
        self.architectures, self.tensors, self.keys = pairs("LLM_ARCH_NAMES"), pairs("LLM_TENSOR_NAMES"), pairs("LLM_KV_NAMES")
        self.bases = dict(re.findall(r"struct (llama_model_\w+) : public (llama_model_\w+)", self.texts["models/models.h"]))
        self.classes, cases = {}, []
        for arch, made in re.findall(r"case (LLM_ARCH_\w+):|return new (llama_model_\w+)\(", model):
            cases.append(arch)
            if made:
                self.classes.update({arch: made for arch in cases if arch})
                cases = []
        self.functions = {}
        for text in self.texts.values():
            for match in re.finditer(r"^(?:static )?(?:void|bool|int\w*) (\w+(?:::\w+)?)\(([^)]*)\)(?: const)? \{\n(.*?)^\}", text, re.S | re.M):
                self.functions[match[1]] = match
        fields = re.findall(r"^    (?:uint32_t|int32_t|bool)\s+(\w+)\s*=\s*(-?\d+|false|true);", self.texts["llama-hparams.h"], re.M)
        self.defaults = {name: {"false": 0, "true": 1}.get(value) if not value.lstrip("-").isdigit() else int(value) for name, value in fields}
        self.locals = re.findall(r"(\w+)\s*=\s*([^;]+);\s*GGML_UNUSED", re.search(r"#define LLAMA_LOAD_LOCALS(.*?)\n\n", self.texts["llama-model.h"], re.S)[1])
        self.parsed, self.names = {}, {}

    def function(self, name):
        """Returns a function; `None` if it does not exist."""
        if name not in self.parsed:
            match = self.functions.get(name)
            parameters = [(re.split(r"[\s*&]+", part.strip())[-1], None) for part in match[2].split(",")] if match else []
            self.parsed[name] = match and Function(parameters, Parser(match[3]).block())
        return self.parsed[name]

    def method(self, model, name):
        """Returns a method of a class or of its bases."""
        while model:
            if found := self.function(f"{model}::{name}"):
                return found
            model = self.bases.get(model)
        return None


class Emission:
    """A tensor with its sides, the path on which it must be stored, if any, and the path on which it may be."""

    def __init__(self, name, sides, path, outer):
        self.name, self.sides, self.path, self.outer = name, sides, path, outer


class Machine:
    """Executes the functions of one architecture."""

    # The arrays with an entry per layer, by the method that reads them.
    ARRAYS = {"n_head": "n_head_arr", "n_head_kv": "n_head_kv_arr", "n_ff": "n_ff_arr", "n_ff_exp": "n_ff_exp_arr", "n_expert_used": "n_expert_used_arr", "is_swa": "is_swa_impl", "is_recr": "is_recr_impl", "is_indexer_full": "is_indexer_full_impl"}

    def __init__(self, source, arch):
        self.source, self.arch, self.model = source, arch, source.classes[arch]
        self.env = {f"hparams.{name}": value for name, value in source.defaults.items()}
        self.env.update({"ml.load_mtp": 1, "hparams.vocab_only": 0, "NULL": "null", "nullptr": "null", "true": 1, "false": 0, "arch": ("arch", arch)})
        # The conditions of the branch that is executed, each with its outcome. Unknown ones begin with a question mark.
        self.path, self.emitted, self.required, self.lengths, self.ignored = (), [], [], {}, set()
        self.depth = 0
        self.run(source.function("llama_model_base::load_hparams").body)
        self.path = ()
        for name, text in source.locals:
            self.env[name] = self.named(name, self.value(Parser(text).expression()))
        tensors = source.method(self.model, "load_arch_tensors")
        self.run(tensors.body if tensors else [])

    def run(self, statements):
        for at, statement in enumerate(statements):
            if (kind := statement[0]) == "if":
                self.branch(statement)
            elif kind == "block":
                self.run(statement[1])
            elif kind == "for":
                self.loop(*statement[1:])
            elif kind == "try":
                self.run(statement[1])
                self.branch(("if", ("unknown", "catch"), statement[2], []))
            elif kind == "declare":
                self.env[statement[1]] = self.value(statement[2]) if statement[2] else None
            elif kind == "expression":
                self.value(statement[1])
            elif kind == "unknown":
                self.ignored.add(statement[1][:100])
            elif kind != "break":
                raise Stop("throw" if kind == "GGML_ABORT" else kind, self.value(statement[1]) if statement[1] else None)

    def condition(self, expression):
        """Returns a condition: a number, a formula, or a text with a question mark."""
        value = self.value(expression)
        if isinstance(value, Tensor):
            value = f"?stored {value.name}" if value.is_optional else 1
        if value == "null":
            return 0
        if isinstance(value, tuple) and value[0] == "not":
            return value
        return value if is_number(value) else f"?{expression}"

    def branch(self, statement):
        _, expression, then, other = statement
        condition, outcome = self.condition(expression), True
        if isinstance(condition, tuple):
            condition, outcome = condition[1], False
        if isinstance(condition, int):
            return self.run(then if bool(condition) == outcome else other)
        before, path, ends = dict(self.env), self.path, []
        states = []
        for statements, result in ((then, outcome), (other, not outcome)):
            self.env, self.path = dict(before), (*path, (condition, result))
            try:
                self.run(statements)
                ends.append(None)
            except Stop as stop:
                ends.append(stop)
            states.append(self.env)
        self.path = path
        if ends[0] and ends[1]:
            raise ends[0]
        if not ends[0] and not ends[1]:
            formula = None if condition.startswith("?") else condition if outcome else negation(condition)
            names = dict.fromkeys([*states[0], *states[1]])
            self.env = {name: choice(formula, states[0].get(name), states[1].get(name)) for name in names}
        else:
            self.env = states[1 if ends[0] else 0]
            if (ends[0] or ends[1]).kind != "throw":
                self.path = (*path, (condition, outcome == bool(ends[1])))

    def loop(self, name, start, condition, body):
        first = self.value(start) if start else None
        last = self.value(condition[3]) if condition[0] == "binary" and condition[1] == "<" else None
        layers = self.hparam("n_layer", [])
        last = layers if last == self.env.get("hparams.n_layer_all") else last
        if first == layers and first != 0:
            # The layers that draft tokens follow the others.
            return
        path, outer = self.path, self.depth
        if outer:
            self.path = (*path, (f"?{condition}", True))
        elif first != 0 or last != layers:
            above, below = binary(">=", LAYER, first), binary("<", LAYER, last)
            known = above is not None and below is not None
            self.path = (*path, (both(1 if first == 0 else above, below) if known else f"?{condition}", True))
        self.env[name], self.depth = LAYER, outer + 1
        self.range = (first, last) if not outer else None
        before = dict(self.env)
        inside = self.path
        try:
            self.run(body)
        except Stop as stop:
            if stop.kind not in ("continue", "throw"):
                raise
        extra = inside[len(path) :]
        if extra:
            formula = None if extra[0][0].startswith("?") else extra[0][0]
            self.env = {key: choice(formula, value, before.get(key)) for key, value in self.env.items()}
        self.path, self.depth = path, outer

    def value(self, expression):
        kind, *parts = expression
        if kind in ("number", "text"):
            return parts[0] if kind == "number" else ("text", parts[0])
        if kind == "name":
            return self.name(parts[0])
        if kind == "lambda":
            return Function(parts[0], parts[1])
        if kind == "list":
            return [self.value(part) for part in parts[0]]
        if kind == "choice":
            condition = self.condition(parts[0])
            if isinstance(condition, tuple):
                condition, parts = condition[1], [parts[0], parts[2], parts[1]]
            formula = None if isinstance(condition, str) and condition.startswith("?") else condition
            return choice(formula, self.value(parts[1]), self.value(parts[2])) if not isinstance(formula, int) else self.value(parts[1 if formula else 2])
        if kind == "assign":
            return self.assign(*parts)
        if kind == "unary":
            return self.unary(*parts)
        if kind == "binary":
            return self.binary(*parts)
        if kind == "call":
            return self.call(*parts)
        if kind == "index":
            name = parts[0][1] if parts[0][0] == "name" else ""
            index = self.value(parts[1])
            return self.of_layer(self.env.get(name), index) if name.startswith("hparams.") else None
        return None

    def name(self, name):
        if name.startswith("TENSOR_"):
            return Flags({name: 1})
        if name.startswith(("LLM_ARCH_", "LLM_TENSOR_", "LLM_KV_")):
            return ("arch" if name.startswith("LLM_ARCH_") else "constant", name)
        return self.env.get(name)

    def unary(self, symbol, expression):
        if symbol == "!":
            condition = self.condition(expression)
            if isinstance(condition, tuple):
                return condition[1]
            return ("not", condition) if isinstance(condition, str) and condition.startswith("?") else negation(condition)
        value = self.value(expression)
        return -value if symbol == "-" and isinstance(value, int) else value if symbol in "*&" else None

    def binary(self, symbol, left, right):
        if symbol in ("&&", "||"):
            sides = [self.condition(left), self.condition(right)]
            sides = [None if isinstance(side, tuple) or isinstance(side, str) and side.startswith("?") else side for side in sides]
            return (both if symbol == "&&" else either)(*sides)
        left, right = self.value(left), self.value(right)
        if symbol in ("==", "!=") and "null" in (left, right):
            tensor = left if right == "null" else right
            if isinstance(tensor, Tensor):
                stored = f"?stored {tensor.name}" if tensor.is_optional else 1
                return (stored if symbol == "!=" else ("not", stored)) if tensor.is_optional else int(symbol == "!=")
            return None
        if isinstance(left, tuple) or isinstance(right, tuple):
            is_arch = isinstance(left, tuple) and isinstance(right, tuple) and left[0] == right[0] == "arch"
            return int((left == right) == (symbol == "==")) if is_arch else None
        if symbol in ("|", "&") and (isinstance(left, Flags) or isinstance(right, Flags)):
            sides = [side if isinstance(side, Flags) else Flags() for side in (left, right)]
            if symbol == "|":
                return Flags({flag: either(sides[0].get(flag, 0), sides[1].get(flag, 0)) for flag in [*sides[0], *sides[1]]})
            common = [both(sides[0][flag], sides[1][flag]) for flag in sides[0] if flag in sides[1]]
            return common[0] if common else 0
        if symbol in (">", "<="):
            return binary("<" if symbol == ">" else ">=", right, left)
        if symbol == "!=":
            return negation(binary("==", left, right))
        # A layer of a loop is before the layers that draft tokens.
        if left == LAYER and symbol in ("<", ">=") and right == self.hparam("n_layer", []):
            return int(symbol == "<")
        return binary(symbol, left, right) if symbol in "+-*/%==<>=" else None

    def assign(self, symbol, target, expression):
        value = self.value(expression)
        if symbol != "=":
            value = self.binary(symbol[0], target, expression)
        if target[0] == "index":
            target = target[1]
        if target[0] == "name":
            self.env[target[1]] = value
        return value

    def of_layer(self, value, index):
        """Returns the value of an array for a layer. Without a layer, a list with a value per layer has none."""
        if index == LAYER or not isinstance(value, str):
            return value
        keys = set(re.findall(r"[a-z_]+\.[\w.]+|feed_forward_length|expert_\w+", value)) - {NONE}
        if len(keys) != 1:
            return None if depends_on_layer(value) else value
        key = keys.pop()
        return self.named(key, value.replace(key, f"((len({key})|0)==0?{key}:{NONE})"))

    def named(self, name, value):
        """Returns the name of a formula that many architectures use."""
        if not isinstance(value, str) or is_closed(value) and "(" not in value:
            return value
        name = re.sub(r"\W", "_", name)
        for number in itertools.count():
            candidate = f"${name}{number or ''}"
            if self.source.names.setdefault(candidate, value) == value:
                return candidate

    def call(self, function, arguments):
        if function[0] == "member":
            return self.value(function[1])
        if function[0] != "name":
            return None
        name = function[1]
        if name.endswith((".str", ".c_str", ".begin", ".end")):
            return self.value(("name", name.rpartition(".")[0]))
        if name in ("std::max", "std::min"):
            left, right = (self.value(argument) for argument in arguments)
            condition = binary("<", left, right)
            return choice(condition, *((right, left) if name == "std::max" else (left, right)))
        if name in ("int", "int64_t", "uint32_t", "float", "size_t"):
            return self.value(arguments[0])
        if name == "std::fill":
            self.assign("=", ("name", arguments[0][1][1].rpartition(".")[0]), arguments[2])
            return None
        if name.startswith("ml.get_") or name.endswith("require_nonzero"):
            return self.get_key(name, arguments)
        if name == "tn":
            return self.tensor_name(arguments)
        if name == "create_tensor":
            return self.create(arguments)
        if name.startswith("hparams."):
            return self.hparam(name.removeprefix("hparams."), arguments)
        if name in ("vocab.n_tokens", "vocab.n_token_types"):
            return "tokenizer.ggml.tokens" if name.endswith("tokens") else "tokenizer.ggml.token_type_count"
        if name == "load_swa_pattern":
            key, period = "attention.sliding_window_pattern", self.value(arguments[1])
            pattern = self.pattern(f"({key}|{period})", len(arguments) > 2 and self.value(arguments[2]))
            self.env["hparams.is_swa_impl"] = f"((len({key})|0)?{key}:({pattern}))" if is_number(period) else None
            return None
        found = self.env.get(name)
        found = found if isinstance(found, Function) else self.source.function(name) or self.source.method(self.model, name) or self.source.function(f"llama_model_base::{name}")
        return self.execute(found, arguments) if found else None

    def execute(self, function, arguments):
        values = [self.value(argument) for argument in arguments]
        names = [name for name, _ in function.parameters]
        hidden = {name: self.env.get(name) for name in names}
        for (name, default), value in itertools.zip_longest(function.parameters, values):
            self.env[name] = self.value(default) if value is None and default else value
        result, path = None, self.path
        try:
            self.run(function.body)
        except Stop as stop:
            if stop.kind != "return":
                raise
            result = stop.value
        self.path = path
        self.env.update(hidden)
        return result

    @staticmethod
    def pattern(period, is_dense_first):
        """Returns the formula of `set_swa_pattern`."""
        rest = f"({LAYER}%{operand(period)})"
        return f"{rest}==0?0:1" if is_dense_first else f"{rest}<({operand(period)}-1)"

    def hparam(self, name, arguments):
        index = self.value(arguments[0]) if arguments else None
        get = lambda field: self.env.get(f"hparams.{field}")
        again = lambda other: self.hparam(other, arguments)
        if name == "n_layer":
            return self.named("layers", binary("-", get("n_layer_all"), get("n_layer_nextn")))
        if name in self.ARRAYS:
            return self.named(name, self.of_layer(get(self.ARRAYS[name]), index))
        if name in ("n_embd_head_k", "n_embd_head_v", "n_rot"):
            window = get("is_swa_impl") if index == LAYER or get("is_swa_impl") == 0 else None
            full, local = get(f"{name}_full"), get(f"{name}_swa")
            if window is None and is_number(full):
                key = {"n_embd_head_k": "attention.key_length_swa", "n_embd_head_v": "attention.value_length_swa", "n_rot": "rope.dimension_count_swa"}[name]
                return self.named(name, f"(has({key})?{NONE}:{operand(full)})")
            return self.named(name, choice(window, local, full))
        if name in ("n_embd_k_gqa", "n_embd_v_gqa"):
            return binary("*", again(f"n_embd_head_{name[7]}"), again("n_head_kv"))
        if name == "is_mla":
            return both(negation(negation(get("n_embd_head_k_mla_impl"))), negation(negation(get("n_embd_head_v_mla_impl"))))
        if name in ("n_embd_head_k_mla", "n_embd_head_v_mla"):
            return choice(again("is_mla"), get(f"{name}_impl"), self.hparam(name[:13], []))
        if name in ("n_embd_out", "n_embd_inp", "n_embd_inp_enc"):
            return choice(binary("<", 0, get(f"{name}_impl")), get(f"{name}_impl"), again("n_embd_inp") if name.endswith("enc") else get("n_embd"))
        if name == "set_swa_pattern":
            first = len(arguments) > 1 and self.value(arguments[1])
            self.env["hparams.is_swa_impl"] = self.pattern(index, first) if is_number(index) and index else None
        return None

    def get_key(self, name, arguments):
        """Reads a key into a variable."""
        if name == "ml.get_arch":
            return ("arch", self.arch)
        if len(arguments) < 2:
            # Files have the first layer, and the layers that draft tokens.
            name = self.value(arguments[0]) if arguments else None
            is_stored = isinstance(name, tuple) and name[1].startswith("blk.0.") or "mtp_probe" in str(arguments)
            return Tensor("first", False) if is_stored else None
        at = 1 if name.endswith("require_nonzero") else 0
        key = self.source.keys.get(arguments[at][1], "").removeprefix("%s.") if arguments[at][0] == "name" else ""
        target = arguments[at + 1]
        rest = [self.value(argument) for argument in arguments[at + 2 :]]
        is_required = 0 not in rest[-1:]
        if not key or target[0] != "name":
            return None
        before = self.env.get(target[1])
        found = f"len({key})" if name == "ml.get_arr_n" and key != "tokenizer.ggml.tokens" else key
        self.env[target[1]] = found if is_required or not is_number(before) else f"({found}|{operand(before)})"
        if is_required and not self.path and not key.startswith("tokenizer"):
            self.required.append(key)
        return 1 if is_required else f"has({key})"

    def tensor_name(self, arguments):
        found = self.source.tensors.get(arguments[0][1]) if arguments[0][0] == "name" else None
        if arguments[0][0] == "name" and found is None and isinstance(value := self.env.get(arguments[0][1]), tuple):
            found = self.source.tensors.get(value[1])
        if found is None:
            return None
        for argument in arguments[1:]:
            value = self.value(argument)
            if isinstance(value, tuple) and value[0] == "text":
                found += f".{value[1]}"
            else:
                found = found.replace("%d", str(value) if isinstance(value, int) and value >= 0 else "#", 1)
        return ("tensor", found)

    def create(self, arguments):
        name, sides, flags = (self.value(argument) for argument in arguments[:3])
        if not isinstance(name, tuple) or name[0] != "tensor" or not isinstance(sides, list):
            self.ignored.add(str(arguments)[:100])
            return None
        name = name[1]
        flags = flags if isinstance(flags, Flags) else Flags() if flags == 0 else Flags({"TENSOR_NOT_REQUIRED": None})
        optional = 0
        for flag in ("TENSOR_NOT_REQUIRED", "TENSOR_DUPLICATED", "TENSOR_SKIP"):
            optional = either(optional, flags.get(flag, 0)) if optional is not None else None
        path = None if optional == 1 else self.path if optional == 0 else (*self.path, (optional or f"?flags {name}", False))
        if "#" in name and name.endswith("#") is False:
            self.lengths.setdefault(name[: name.index("#") + 1], set()).add(self.range if self.depth == 1 else None)
        if self.depth and "#" not in name:
            # A tensor of the model that only some layers need.
            sides, path = [None] * len(sides), None
        if "TENSOR_ALLOW_RESHAPE" in flags:
            sides = [None] * len(sides)
        self.emitted.append(Emission(name, sides, path, self.path))
        return Tensor(name, optional != 0)


class Table:
    """Writes the words of one architecture."""

    def __init__(self, machine):
        self.machine = machine
        self.emissions = collections.defaultdict(list)
        for emission in machine.emitted:
            self.emissions[emission.name].append(emission)
        self.groups, self.rules = {}, {}

    def words(self):
        found = {}
        for name, ranges in self.machine.lengths.items():
            length, rest = 0, set(ranges)
            while following := next((found for found in rest if found and found[0] == length and found[1] is not None), None):
                rest.remove(following)
                length = following[1]
            found[name] = "_" if rest or depends_on_layer(length) else str(length)
        for name, emissions in self.emissions.items():
            # The rules about biases cover those of other modules.
            if name.endswith(".bias") and f"{name[:-4]}weight" in self.emissions and all(emission.path is None for emission in emissions):
                continue
            found[name.removesuffix(".weight")] = self.group(name, emissions) + self.shape(emissions)
        found.update(self.rules)
        return found

    def shape(self, emissions):
        shapes = list({tuple(map(str, reversed(emission.sides))): None for emission in emissions})
        if len({len(shape) for shape in shapes}) > 1:
            return "_"
        sides = []
        for values in zip(*shapes):
            value = values[0] if len(set(values)) == 1 and values[0] != "None" else "_"
            sides.append(value if len(value) < 400 else "_")
        # A file need not store the slowest dimensions of length 1.
        return ",".join(sides) if set(sides) - {"_"} and sides[0] != "1" else "_"

    def group(self, name, emissions):
        paths = simplified([emission.path for emission in emissions if emission.path is not None])
        if () in paths:
            return ""
        if not paths:
            # The group of what is stored with it, or the choice between it and others.
            outer, stored = emissions[0].outer, f"?stored {name}"
            paths = {emission.path for emission in self.machine.emitted if emission.path}
            if len(emissions) == 1 and ((*outer, (stored, True)) in paths or ((stored, False),) in paths):
                return self.letter(name, (*outer, (stored, True))) + ":"
            return "-"
        if len(paths) > 1 and any(is_unknown(path) for path in paths):
            return "-"
        return self.letter(name, *paths) + ":"

    def letter(self, name, *paths):
        parent = name[: name.rindex("#") + 1] + "." if "#" in name else ""
        key = (parent, tuple(sorted(map(str, paths))))
        if key not in self.groups:
            used = sum(other == parent for other, _ in self.groups)
            self.groups[key] = letter = string.ascii_letters[used]
            if not any(is_unknown(path) for path in paths):
                formulas = [formula_of(path) for path in paths]
                text = formulas[0] if len(formulas) == 1 else "+".join(map(operand, formulas))
                self.rules[f"{parent}?{letter}"] = text
            elif paths[0][-1][0].startswith("?stored") and len(paths[0]) == 1:
                self.choose(parent, paths[0])
        return self.groups[key]

    def choose(self, parent, path):
        """Adds the rule that one of two groups is stored: the tensor, or what replaces it."""
        twin = (parent, (str(((path[0][0], not path[0][1]),)),))
        if twin in self.groups:
            mine = self.groups[parent, (str(path),)]
            pair = (mine, self.groups[twin]) if not path[0][1] else (self.groups[twin], mine)
            rule = f"{parent}?"
            self.rules[rule] = ",".join(filter(None, [self.rules.get(rule), "|".join(pair)]))


def is_unknown(path):
    return any(condition.startswith("?") for condition, _ in path)


def formula_of(path):
    value = 1
    for condition, outcome in path:
        value = both(value, condition if outcome else negation(condition))
    return str(value)


def simplified(paths):
    """Merges paths that differ in the outcome of one condition, and removes those that others contain."""
    paths = list(dict.fromkeys(paths))
    for first, second in itertools.permutations(paths, 2):
        differing = [at for at, (left, right) in enumerate(zip(first, second)) if left != right]
        if len(first) == len(second) and len(differing) == 1 and first[differing[0]][0] == second[differing[0]][0]:
            at = differing[0]
            return simplified([path for path in paths if path not in (first, second)] + [first[:at] + first[at + 1 :]])
        if set(first) < set(second):
            return simplified([path for path in paths if path != second])
    return paths


def main():
    folder, table = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    source = Source(folder / "src")
    version = ".".join(re.findall(r"LLAMA_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", (folder / "CMakeLists.txt").read_text()))
    words, keys = {}, collections.defaultdict(list)
    for arch, name in source.architectures.items():
        if arch not in source.classes or name in ("clip", "(unknown)"):
            continue
        machine = Machine(source, arch)
        if not machine.emitted:
            continue
        words[f"gguf:{name}"] = Table(machine).words()
        keys["|".join(dict.fromkeys(machine.required))].append(f"gguf:{name}")
        for text in sorted(machine.ignored):
            print(name, text, file=sys.stderr)
    blocks = layout_blocks.write(words, is_nested=False)
    used = set(re.findall(r"\$\w+", " ".join(blocks)))
    while more := {name for found in used for name in re.findall(r"\$\w+", source.names[found])} - used:
        used |= more
    names = " ".join(f"{name}={source.names[name]}" for name in sorted(used))
    header = f"# The tensors of GGUF files, from llama.cpp {version}, by tests/oracles/gguf_layouts.py. `layouts.txt` explains the lines."
    lines = [header, *blocks, "", f"names gguf {names}"]
    lines += [f"keys {','.join(found)} {required}" for required, found in keys.items()]
    table.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
