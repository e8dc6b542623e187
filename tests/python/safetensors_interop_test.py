"""Files of the real safetensors library are read by Weir, and Weir's by it, byte for byte.

Needs numpy and safetensors 0.8 or newer. WEIR_BIN names the folder that holds `safetensors_echo`.
Prints what failed, then "N passed, M failed"; exit status 0 only if nothing failed.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy
import safetensors
import safetensors.numpy

# Weir's name, the format's name, bytes per element.
TYPES = [
    ("f32", "F32", 4), ("f16", "F16", 2), ("bf16", "BF16", 2), ("f8_e4m3", "F8_E4M3", 1),
    ("f8_e5m2", "F8_E5M2", 1), ("i8", "I8", 1), ("u8", "U8", 1), ("i32", "I32", 4),
    ("i64", "I64", 8), ("bool", "BOOL", 1),
]
# What the library's raw interface calls each.
RAW_NAMES = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8_e4m3": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2", "i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64",
    "bool": "bool",
}
SHAPES = [[], [1], [7], [0], [3, 0, 2], [2, 3, 5], [1, 2, 1, 2, 1, 2]]


def echo(*arguments):
    program = Path(os.environ["WEIR_BIN"]) / "safetensors_echo"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line for line in lines[:-1]}, lines[-1]["metadata"]


def refused(path):
    """The one line with which Weir refuses a file."""
    try:
        echo(path)
    except RuntimeError as error:
        return str(error)
    raise AssertionError(f"{path} was not refused")


def raw_file(seed):
    """A file by the real library, with every type and shape: its bytes, and each tensor's."""
    random = numpy.random.default_rng(seed)
    specs, arrays, values = {}, [], {}
    for name, _, size in TYPES:
        for shape in SHAPES:
            count = int(numpy.prod(shape, dtype=numpy.int64)) * size
            array = random.integers(0, 2 if name == "bool" else 256, count, numpy.uint8)
            key = f"{name}.{'x'.join(map(str, shape))}"
            specs[key] = safetensors.TensorSpec(
                dtype=RAW_NAMES[name], shape=shape, data_ptr=array.ctypes.data, data_len=count
            )
            arrays.append(array)  # The library reads it when it serializes.
            values[key] = (name, shape, array.tobytes())
    return safetensors.serialize(specs, {"format": "pt", "clé": "\"\n☃"}), values


def check_same(path, values):
    """That the real library reads `path` as those values."""
    found = dict(safetensors.deserialize(Path(path).read_bytes()))
    assert found.keys() == values.keys()
    names = {weir: real for weir, real, _ in TYPES}
    for key, (kind, shape, data) in values.items():
        assert found[key]["dtype"] == names[kind], key
        assert found[key]["shape"] == shape, key
        assert bytes(found[key]["data"]) == data, key


def test_every_type_and_shape_goes_through(folder):
    for seed in range(3):
        data, values = raw_file(seed)
        (folder / "in").write_bytes(data)
        tensors, metadata = echo(folder / "in", folder / "out")
        assert metadata == {"format": "pt", "clé": "\"\n☃"}
        assert tensors.keys() == values.keys()
        for key, (kind, shape, _) in values.items():
            assert (tensors[key]["type"], tensors[key]["shape"]) == (kind, shape), key
        check_same(folder / "out", values)
        # The library opens files by another path than it reads bytes, with its own checks.
        with safetensors.safe_open(folder / "out", framework="np") as opened:
            assert opened.metadata() == metadata
            assert sorted(opened.keys()) == sorted(values)


def test_our_file_read_again_by_us_says_the_same(folder):
    data, _ = raw_file(1)
    (folder / "in").write_bytes(data)
    first = echo(folder / "in", folder / "out")
    assert echo(folder / "out", folder / "again") == first
    assert (folder / "out").read_bytes() == (folder / "again").read_bytes()


def test_numpy_arrays_go_through(folder):
    arrays = {
        "half": numpy.arange(12, dtype=numpy.float16).reshape(3, 4),
        "long": numpy.array([-(2**63), 2**63 - 1], dtype=numpy.int64),
        "truth": numpy.array([True, False]),
        "none": numpy.zeros((0, 4), dtype=numpy.float32),
        "scalar": numpy.array(1.5, dtype=numpy.float32),
    }
    safetensors.numpy.save_file(arrays, folder / "in")
    echo(folder / "in", folder / "out")
    found = safetensors.numpy.load_file(folder / "out")
    assert found.keys() == arrays.keys()
    for key, array in arrays.items():
        assert found[key].dtype == array.dtype and found[key].shape == array.shape, key
        assert found[key].tobytes() == array.tobytes(), key


def test_our_data_is_aligned(folder):
    data, values = raw_file(2)
    (folder / "in").write_bytes(data)
    echo(folder / "in", folder / "out")
    written = (folder / "out").read_bytes()
    length = int.from_bytes(written[:8], "little")
    assert (8 + length) % 64 == 0
    sizes = {real: size for _, real, size in TYPES}
    for key, entry in json.loads(written[8 : 8 + length]).items():
        if key != "__metadata__":
            assert entry["data_offsets"][0] % sizes[entry["dtype"]] == 0, key


def test_a_sharded_checkpoint_is_one(folder):
    random = numpy.random.default_rng(7)
    arrays = {f"layer.{i}": random.random((i, 5), numpy.float32) for i in range(9)}
    weight_map = {}
    for shard in range(3):
        name = f"model-{shard + 1:05}-of-00003.safetensors"
        part = {key: arrays[key] for key in list(arrays)[shard::3]}
        safetensors.numpy.save_file(part, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, name))
    index = {"metadata": {"total_size": 720}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    echo(folder, folder / "whole")
    found = safetensors.numpy.load_file(folder / "whole")
    assert found.keys() == arrays.keys()
    assert all(found[key].tobytes() == arrays[key].tobytes() for key in arrays)


def test_a_file_without_tensors_goes_through(folder):
    (folder / "in").write_bytes(safetensors.serialize({}, None))
    assert echo(folder / "in", folder / "out") == ({}, {})
    assert safetensors.deserialize((folder / "out").read_bytes()) == []


def test_types_that_weir_has_not_are_refused_by_name(folder):
    for array, name in [
        (numpy.zeros(2, numpy.float64), "F64"), (numpy.zeros(2, numpy.int16), "I16"),
        (numpy.zeros(2, numpy.uint16), "U16"), (numpy.zeros(2, numpy.uint32), "U32"),
        (numpy.zeros(2, numpy.uint64), "U64"),
    ]:
        safetensors.numpy.save_file({"t": array}, folder / "in")
        text = refused(folder / "in")
        assert f'tensor "t" has the type "{name}"' in text and text.count("\n") == 0, text


def test_what_the_real_library_refuses_we_refuse(folder):
    """Cuts and changed header bytes: whatever the real library finds faulty, so do we."""
    data, values = raw_file(4)
    header_end = 8 + int.from_bytes(data[:8], "little")
    random = numpy.random.default_rng(11)
    cases = [data[:cut] for cut in (0, 7, 8, 9, header_end - 1, header_end, len(data) - 1)]
    cases.append(data + b"x")
    for _ in range(60):
        place = int(random.integers(0, header_end))
        cases.append(data[:place] + bytes([int(random.integers(0, 256))]) + data[place + 1 :])
    refusals = 0
    for number, case in enumerate(cases):
        try:
            safetensors.deserialize(case)
        except Exception:  # The library's own exception type, and what Python makes of bad UTF-8.
            (folder / "in").write_bytes(case)
            assert refused(folder / "in"), number
            refusals += 1
    assert refusals > 20, refusals


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    failed = 0
    for name, test in tests:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(Path(folder))
            except Exception:
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
