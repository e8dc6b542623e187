"""Canonical tensors whose elements name their own place, and the cases that are dumped from them.

Elements of all canonical tensors of a model, in the order of their names, are numbered from 1.
Wherever an engine puts an element, its number tells where it came from; 0 is padding.
"""

import importlib.metadata
import json
import pathlib
import re
import shutil
import tempfile

import numpy
import safetensors.numpy

import bailing

# Numbers beyond this are not exact as 32-bit floats.
NUMBER_MAX = 2**24
# What a parameter holds before the engine loads it; none may be left.
UNSET = -1


def names_and_shapes(config):
    """What Transformers saves for a model of that config: canonical names to shapes.

    It is `save_pretrained` that decides, so the names are those of published checkpoints, whatever
    the modules are called.
    """
    if config["model_type"] == "bailing_moe":
        return bailing.names_and_shapes(config)
    with tempfile.TemporaryDirectory() as folder:
        model_of(config).save_pretrained(folder)
        tensors = safetensors.numpy.load_file(pathlib.Path(folder) / "model.safetensors")
        return {name: list(tensor.shape) for name, tensor in sorted(tensors.items())}


def buffers_among(config, shapes):
    """Those of the canonical tensors that a model keeps as buffers, which no optimizer changes."""
    if config["model_type"] == "bailing_moe":
        return sorted(name for name in shapes if name.endswith(".expert_bias"))
    return sorted(name for name, _ in model_of(config).named_buffers() if name in shapes)


def model_of(config):
    """A Transformers model with values of no meaning, in 32-bit floats."""
    import torch
    import transformers

    facts = dict(config)
    # Transformers has no class of its own for it: the published checkpoint names DeepSeek-V3's.
    if facts["model_type"] == "kimi_k2":
        facts["model_type"] = "deepseek_v3"
    model_type = facts.pop("model_type")
    settings = transformers.AutoConfig.for_model(model_type, **facts)
    settings._attn_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.float32)


def loaded_model_of(checkpoint):
    """A Transformers model that has read all of a checkpoint, and nothing else."""
    import transformers

    config = json.loads((checkpoint / "config.json").read_text())
    model = type(model_of(config))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
        if config["model_type"] == "kimi_k2":
            write_json(pathlib.Path(folder) / "config.json", config | {"model_type": "deepseek_v3"})
        loaded, report = model.from_pretrained(folder, output_loading_info=True)
    assert isinstance(loaded, transformers.PreTrainedModel)
    assert not any(report.values()), report
    return loaded


def numbered(shapes):
    """Names and shapes to tensors: running numbers as 32-bit integers, in the order of names."""
    tensors, first = {}, 1
    for name, shape in sorted(shapes.items()):
        count = int(numpy.prod(shape, dtype=numpy.int64))
        values = numpy.arange(first, first + count, dtype=numpy.int32)
        tensors[name] = values.reshape(shape)
        first += count
    assert first <= NUMBER_MAX
    return tensors


def write_checkpoint(folder, config, tensors):
    """A checkpoint as it is published, with numbers as 32-bit floats."""
    folder.mkdir(parents=True)
    write_json(folder / "config.json", config)
    floats = {name: tensor.astype(numpy.float32) for name, tensor in tensors.items()}
    safetensors.numpy.save_file(floats, folder / "model.safetensors", {"format": "pt"})


def load_numbers(checkpoint):
    floats = safetensors.numpy.load_file(checkpoint / "model.safetensors")
    return {name: integers_of(tensor) for name, tensor in floats.items()}


def write_json(path, value):
    text = json.dumps(value, indent=1)
    # A shape, or which rank, is one line.
    text = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda match: re.sub(r"\s+", " ", match[0]), text)
    path.write_text(text + "\n")


def integers_of(tensor):
    """The numbers in what the engine keeps, whatever its type; exactness is checked."""
    values = numpy.asarray(tensor, dtype=numpy.float64)
    numbers = values.astype(numpy.int32)
    assert (numbers == values).all(), "an element is no whole number"
    return numbers


def tensors_of(model):
    """Parameters and persistent buffers. Many modules hold another's tensors, too: each tensor is
    listed once, under the name by which the engine's loader finds it."""
    tensors = dict(model.named_parameters())
    seen = {id(value) for value in tensors.values()}
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            tensors[name] = value
            seen.add(id(value))
    return tensors


def unset(model):
    """Before loading: every element is one that may not be left."""
    import torch

    with torch.no_grad():
        for value in tensors_of(model).values():
            value.copy_(torch.full(value.shape, float(UNSET)))


def loaded_tensors(model):
    """Without buffers that no checkpoint fills, like scales of the KV cache."""
    parameters = {name for name, _ in model.named_parameters()}
    loaded = {}
    for name, value in tensors_of(model).items():
        numbers = integers_of(value.detach().numpy())
        if name in parameters or not (numbers == UNSET).all():
            loaded[name] = numbers
    return loaded


class Case:
    """One model in one parallel configuration of one engine, as a folder of golden files."""

    def __init__(self, model, layout, ranks, refused=False):
        self.model = model
        self.layout = layout
        self.ranks = ranks
        self.refused = refused

    @property
    def options(self):
        """The layout's options; those that are no numbers stay text."""
        pairs = [pair.split("=") for pair in self.layout.partition(":")[2].split(",") if pair]
        return {key: int(value) if value.isdigit() else value for key, value in pairs}

    @property
    def name(self):
        return f"{self.model}.{self.layout.split(':')[-1].replace('=', '').replace(',', '-')}"

    def write_rank(self, folder, rank, tensors, facts):
        """Called in the process that is the rank; `facts` says which rank the engine means."""
        for name, values in tensors.items():
            assert (values >= 0).all(), f"{name}: an element was never loaded"
        save_numbers(folder / f"rank-{rank}.safetensors", tensors)
        write_json(folder / f"facts-{rank}.json", facts)

    def write_refusal(self, folder, config, engine):
        """Instead, where the engine refuses; `refused-0` says with which words."""
        path = folder / "refused-0"
        write_json(folder / "config.json", config)
        write_json(folder / "case.json", {"layout": self.layout, "engine": engine,
                                          "refused": path.read_text()})
        for rank in range(self.ranks):
            (folder / f"refused-{rank}").unlink()

    def write_case(self, folder, config, shapes, engine, how, scales={}):
        """After all ranks: what the numbers mean and how they were obtained. Where weights are
        quantized, it is their scales that are numbered."""
        count = sum(map(numpy.prod, (scales or shapes).values()))
        missing = count - len(self.numbers_in(folder))
        assert missing == 0, f"{missing} canonical elements are on no rank"
        facts = []
        for rank in range(self.ranks):
            path = folder / f"facts-{rank}.json"
            facts.append(json.loads(path.read_text()))
            path.unlink()
        write_json(folder / "config.json", config)
        write_json(folder / "case.json", {"layout": self.layout, "engine": engine, "how": how,
                                          "ranks": facts, "buffers": buffers_among(config, shapes),
                                          "canonical": dict(sorted((shapes | scales).items()))})

    def numbers_in(self, folder):
        """The canonical elements that any rank keeps."""
        numbers = set()
        for rank in range(self.ranks):
            for tensor in safetensors.numpy.load_file(
                    folder / f"rank-{rank}.safetensors").values():
                numbers.update(tensor.ravel().tolist())
        return numbers - {0}


def save_numbers(path, tensors):
    """Like `safetensors.numpy.save_file`, which refuses tensors without elements in no way but
    promises no order: this one has its own, so that equal tensors give equal bytes."""
    header, offset = {}, 0
    for name, values in sorted(tensors.items()):
        assert values.dtype == numpy.int32
        header[name] = {"dtype": "I32", "shape": list(values.shape),
                        "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, values in sorted(tensors.items()):
            file.write(numpy.ascontiguousarray(values).astype("<i4").tobytes())


def versions(*packages):
    return " ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)


def fresh_folder(path):
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path
