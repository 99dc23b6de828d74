#!/usr/bin/env python3
"""Counts parameters of model configurations with transformers, for tests/unit/model/test_families.c.

Each file of tests/data/transformers/ holds a small configuration under "config", written as the makers
of its family write theirs. This script builds the model of transformers that the configuration names
(on the meta device: shapes without data) and writes into the same file

    "counts"     parameters by component
    "without"    "same": the keys without which the counts are the same, "other": the counts without
                 each of the others, or "refused" where transformers cannot build a model then
    "rewritten"  the configuration as transformers writes it back, as for every fine-tuned model

A component follows from the names of modules and the types of their classes, never from rankfit's tables.

    python3 tests/reference/model_counts.py tests/data/transformers/*.json

Needs torch and transformers (5.x); nothing of it is needed to build or test rankfit.
"""

import copy
import json
import pathlib
import re
import sys
import tempfile
import warnings

import torch
import transformers
from transformers.modeling_layers import MtpModel

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

TOWERS = re.compile(r"^(model\.)?(visual|vision\w*|multi_modal_projector|mm_projector|embed_vision|"
                    r"audio\w*|embed_audio|embed_tokens_extend)\.")
# Classes of modules whose parameters are linear attention, by their endings.
RECURRENT = ("DeltaNet", "DeltaAttention", "LightningAttention", "MambaLayer", "Mamba2Mixer", "MambaMixer",
             "KimiLinearLinearAttention")
# Keys that describe a file rather than a model; not taken away.
IDENTITY = ("architectures", "model_type", "auto_map", "text_config", "transformers_version")


def recurrent_modules(model):
    return [name for name, module in model.named_modules() if type(module).__name__.endswith(RECURRENT)]


def component(name, recurrent):
    """Which of rankfit's components a parameter of that name belongs to."""
    layer = re.search(r"\blayers\.\d+\.(.*)", name)
    if TOWERS.match(name):
        return "vision"
    if layer is None:
        if "embed" in name or "per_layer" in name:
            return "embedding"
        return "head" if "lm_head" in name else "norms"
    inner = layer.group(1)
    if any(name.startswith(module + ".") for module in recurrent):
        return "linear_attention"
    if ".indexer." in inner:
        return "indexer"
    if re.search(r"shared_experts?(_gate)?\.|shared_mlp\.", inner):
        return "shared_expert"
    if re.search(r"\bexperts\.|latent_proj", inner):
        return "experts"
    if re.search(r"\b(gate|router)\.|\brouter\b|e_score_correction_bias|per_expert_scale", inner):
        return "router"
    if "per_layer" in inner:
        return "embedding"
    if re.match(r"mixer\.(up|down)_proj\.", inner):
        return "dense_mlp"
    if re.match(r"(self_attn|attn|attention|mixer)\.", inner):
        return "attention"
    if re.match(r"(mlp|mlps|feed_forward|block_sparse_moe|mixer)\b", inner):
        return "dense_mlp"
    return "norms"


def tensors(model):
    """The tensors of a checkpoint, once each: parameters, and buffers that are no tables computed from the
    configuration, as decays and token tables are."""
    for name, parameter in model.named_parameters():
        if type(model).__name__.startswith("Longcat") and name.endswith("experts.gate_up_proj"):
            # transformers makes room for experts that only hand their rows on; checkpoints do not
            parameter = parameter[:model.config.n_routed_experts]
        yield name, parameter
    kept = model.state_dict()
    for name, buffer in model.named_buffers():
        if name in kept and buffer.is_floating_point() and not re.search(r"slope|decay", name):
            yield name, buffer


def build(config):
    """The model of a configuration read from a file, as users load one."""
    with tempfile.TemporaryDirectory() as directory:
        (pathlib.Path(directory) / "config.json").write_text(json.dumps(config))
        read = transformers.AutoConfig.from_pretrained(directory)
    names = config.get("architectures") or read.architectures
    with torch.device("meta"):
        return getattr(transformers, names[0])(read)


def count(config):
    model = build(config)
    recurrent = recurrent_modules(model)
    counts = {}
    for name, tensor in tensors(model):
        key = component(name, recurrent)
        counts[key] = counts.get(key, 0) + tensor.numel()
    if "experts" not in counts and "shared_expert" in counts:
        # Granite's "shared" MLP is the only one then
        counts["dense_mlp"] = counts.pop("shared_expert")
    predicting = prediction_layers(model)
    if predicting is not None:
        counts["mtp"] = predicting
    return counts


def prediction_layers(model):
    """Parameters of the MTP layers that transformers can build, without embedding and head;
    None where it knows of none."""
    layers = getattr(model.config.get_text_config(), "num_mtp_layers", None)
    if not layers:
        return None
    with torch.device("meta"):
        try:
            extra = MtpModel(model, layers)
        except ValueError:  # of the class that it knows not how
            return None
    return sum(tensor.numel() for name, tensor in tensors(extra) if name.startswith("layers."))


def rewritten(config):
    model = build(config)
    with tempfile.TemporaryDirectory() as directory:
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(directory)
        return json.loads((pathlib.Path(directory) / "config.json").read_text())


def places(config):
    """The maps whose keys are taken away in turn, with their path."""
    yield "", config
    for key, value in config.items():
        if key.endswith("_config") and key.isidentifier() and isinstance(value, dict):
            yield key + ".", value


def without(config, counts):
    same, other = [], {}
    for path, place in places(config):
        for key in place:
            if key in IDENTITY:
                continue
            less = copy.deepcopy(config)
            inner = less if path == "" else less[path[:-1]]
            del inner[key]
            try:
                found = count(less)
            except Exception:  # whatever transformers raises: it has no model for this file
                found = "refused"
            if found == counts:
                same.append(path + key)
            else:
                other[path + key] = found
    return {"same": same, "other": other}


def main(paths):
    for path in paths:
        file = pathlib.Path(path)
        config = json.loads(file.read_text())["config"]
        counts = count(config)
        document = {"transformers": transformers.__version__, "config": config, "counts": counts,
                    "without": without(config, counts), "rewritten": rewritten(config)}
        if count(document["rewritten"]) != counts:
            sys.exit(f"{path}: transformers reads another model from its own file")
        lines = [f'"{key}": {json.dumps(value)}' for key, value in document.items()]
        file.write_text("{" + ",\n ".join(lines) + "}\n")
        print(f"{file.stem}: {sum(counts.values())} {counts}")


if __name__ == "__main__":
    main(sys.argv[1:])
