"""How Transformers names and packs the tiny models. Usage: transformers_dump.py OUT [NAME...]

A numbered checkpoint is read by Transformers' own loader. For the layout `hf` it is saved again and
what the files hold is dumped: that is the canonical form. For `hf:experts=packed` the parameters of
the model in memory are dumped, which is how Transformers 5 keeps experts.
"""

import pathlib
import sys
import tempfile

import safetensors.numpy
import transformers

import cases
import coordinates
import models


ENGINE = "transformers_v4" if transformers.__version__ < "5" else "transformers"


def saved_again(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = safetensors.numpy.load_file(pathlib.Path(folder) / "model.safetensors")
    return {name: coordinates.integers_of(value) for name, value in tensors.items()}


def in_memory(model):
    tensors = {name: coordinates.integers_of(value.numpy())
               for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    return tensors


def dump(case, out):
    config = models.MODELS[case.model]
    shapes = coordinates.names_and_shapes(config)
    folder = coordinates.fresh_folder(out / ENGINE / case.name)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = pathlib.Path(scratch) / "checkpoint"
        coordinates.write_checkpoint(checkpoint, config, coordinates.numbered(shapes))
        model = coordinates.loaded_model_of(checkpoint)
    tensors = in_memory(model) if case.options else saved_again(model)
    case.write_rank(folder, 0, tensors, {"rank": 0})
    case.write_case(folder, config, shapes, coordinates.versions("transformers"),
                    "parameters of the loaded model" if case.options else "loaded, and saved again")


if __name__ == "__main__":
    sys.exit(cases.main(ENGINE, dump))
