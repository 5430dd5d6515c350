"""The format of the fixtures that the oracles write, and a tiny Llama to quantize. Needs Python 3.9 and nothing else.

A fixture is one JSON object:

    name             the name of the file, without `.json`
    written_by       the packer and its version, or `definition: <source file @ version>`
    true_parameters  the number of elements of the unquantized model, without constants of rank 0
    modules          the logical shape of each packed module, as [output features, input features]
    config           `config.json`
    files            other configurations by file name; optional
    metadata         `__metadata__` of the safetensors file; optional
    inexact          the reason why the header and the quantization config do not determine the count; optional
    peers            the reason why huggingface.js counts the checkpoint differently; optional
    base             the shapes of the tensors of an adapted model; optional
    tensors          the header: name, dtype and shape of every tensor
    shards           the headers of several files, in place of `tensors`
"""

import json
import math
import pathlib
import random

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGEST = 32_000

MODULES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


class Llama:
    """A tiny Llama: its configuration, and the shapes of its tensors."""

    def __init__(self, hidden=128, intermediate=384, q=192, kv=64, vocabulary=320, layers=1, head=32, tied=False, bias=False):
        self.hidden, self.intermediate, self.q, self.kv = hidden, intermediate, q, kv
        self.vocabulary, self.layers, self.head, self.tied, self.bias = vocabulary, layers, head, tied, bias

    @classmethod
    def random(cls, name, inputs=128, outputs=64, layers=1, **rest):
        """Returns a geometry that depends on the name only; features are multiples of `inputs` and `outputs`."""
        draw = random.Random(name)
        step = math.lcm(inputs, outputs)
        hidden = step * draw.randint(1, 3)
        q = hidden + step * draw.randint(1, 2)
        intermediate = q + step * draw.randint(1, 3)
        kv = outputs * draw.randint(1, 2)
        vocabulary = 32 * draw.randint(8, 20)
        head = next(size for size in (64, 32, 16, 8, 4, 2, 1) if q % size == 0 and kv % size == 0)
        return cls(hidden, intermediate, q, kv, vocabulary, layers, head, **rest)

    def linear_shapes(self):
        """Returns the shapes of the linear layers as [output features, input features], by module name."""
        h, i, q, kv = self.hidden, self.intermediate, self.q, self.kv
        shapes = ([q, h], [kv, h], [kv, h], [h, q], [i, h], [i, h], [h, i])
        return {f"model.layers.{n}.{name}": shape for n in range(self.layers) for name, shape in zip(MODULES, shapes)}

    def other_shapes(self):
        """Returns the shapes of the tensors that are not weights of linear layers, by tensor name."""
        shapes = {"model.embed_tokens.weight": [self.vocabulary, self.hidden]}
        for n in range(self.layers):
            shapes[f"model.layers.{n}.input_layernorm.weight"] = [self.hidden]
            shapes[f"model.layers.{n}.post_attention_layernorm.weight"] = [self.hidden]
            if self.bias:
                for name, size in (("q", self.q), ("k", self.kv), ("v", self.kv)):
                    shapes[f"model.layers.{n}.self_attn.{name}_proj.bias"] = [size]
        shapes["model.norm.weight"] = [self.hidden]
        if not self.tied:
            shapes["lm_head.weight"] = [self.vocabulary, self.hidden]
        return shapes

    def parameters(self):
        return sum(math.prod(shape) for shapes in (self.linear_shapes(), self.other_shapes()) for shape in shapes.values())

    def config(self, **rest):
        family = "Qwen2" if self.bias else "Llama"
        return {
            "architectures": [f"{family}ForCausalLM"],
            "model_type": family.lower(),
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.q // self.head,
            "num_key_value_heads": self.kv // self.head,
            "head_dim": self.head,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "bfloat16",
            **rest,
        }


def write(folder, case):
    """Writes one fixture, a tensor per line."""
    order = ("name", "written_by", "true_parameters", "inexact", "peers", "modules", "config", "files", "metadata", "base")
    known = set(order) | {"tensors", "shards"}
    assert not set(case) - known, set(case) - known
    section = (case.get("config") or {}).get("quantization_config") or {}
    if section.get("quant_method") == "sdnq" and "modules_to_not_convert" in section:
        section["modules_to_not_convert"].sort()  # written from a set, whose order changes from run to run
    lines = [f" {json.dumps(key)}: {json.dumps(case[key], separators=(', ', ': '))}" for key in order if case.get(key)]
    if "shards" in case:
        shards = ["  [\n   " + ",\n   ".join(json.dumps(tensor) for tensor in shard) + "\n  ]" for shard in case["shards"]]
        lines.append(' "shards": [\n' + ",\n".join(shards) + "\n ]")
    else:
        lines.append(' "tensors": [\n  ' + ",\n  ".join(json.dumps(tensor) for tensor in case["tensors"]) + "\n ]")
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    assert json.loads(text)["name"] == case["name"]
    assert len(text) < LARGEST, f"{case['name']}: {len(text)} bytes"
    path = pathlib.Path(folder) / f"{case['name']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
