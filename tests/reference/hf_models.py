"""Builds what hf_steps.py measures: a model, its loss, its optimizer, as the engines do.

Hugging Face: the class of the model at random weights, the loss that the model computes from
labels, AdamW (fused), gradients clipped at 1, as its Trainer does by default. torchtitan: its own
Transformer, activation checkpointing, compilation and FSDP2 calls, its loss and clipping.
"""

import abc
import contextlib
import importlib.abc
import importlib.machinery
import sys
import types

import torch

TORCHTITAN = "0.2.2"
CLIP_NORM = 1.0


class Job:
    """One training setup: `forward_loss`, `clip` and `optimizer` make a step."""

    def __init__(self, model, forward_loss, clip):
        self.model, self.forward_loss, self.clip = model, forward_loss, clip
        trained = [p for p in model.parameters() if p.requires_grad]
        self.parameters = sum(p.numel() for p in model.parameters())
        self.trained_parameters = sum(p.numel() for p in trained)
        self.optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                           fused=True)


def graph_nodes(loss):
    """How often each operation stands in the autograd graph: which attention ran, what was cast.
    A compiled graph is one node."""
    seen, found, todo = set(), {}, [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found[node.name()] = found.get(node.name(), 0) + 1
        todo.extend(following for following, _ in node.next_functions)
    return found


class Absent(types.ModuleType):
    """Stands for a package that torchtitan imports and that no step uses."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return AbsentName(name, (), {})


class AbsentName(abc.ABCMeta):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return AbsentName(name, (), {})


class AbsentPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Data loading, logging and command-line parsing of torchtitan, which need packages of their
    own, are replaced by empty modules. What a step runs is never replaced."""

    NAMES = ("torchtitan.components.validate", "torchtitan.components.dataloader",
             "torchtitan.hf_datasets.text_datasets", "torch.utils.tensorboard", "tyro", "tomli",
             "torchdata", "datasets", "einops", "PIL", "torchvision", "torchao", "wandb")

    def find_spec(self, name, path=None, target=None):
        if any(name == known or name.startswith(known + ".") for known in self.NAMES):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Absent(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


def import_engines(engines, lora):
    """Imports what the cases need, once, before any process is forked."""
    if "hf" in engines:
        import transformers  # noqa: F401
        from transformers import (GptOssForCausalLM, LlamaForCausalLM,  # noqa: F401
                                  Qwen3ForCausalLM, Qwen3MoeForCausalLM)
        transformers.logging.set_verbosity_error()
        if lora:
            import peft  # noqa: F401
    if "torchtitan" in engines:
        finder = AbsentPackages()
        sys.meta_path.insert(0, finder)
        import torchtitan.models.llama3  # noqa: F401
        import torchtitan.models.qwen3  # noqa: F401
        sys.meta_path.remove(finder)


def hf_config(case, facts):
    import transformers as hf

    common = dict(vocab_size=facts["vocab"], hidden_size=facts["hidden"],
                  num_hidden_layers=facts["layers"], num_attention_heads=facts["heads"],
                  num_key_value_heads=facts["kv_heads"], head_dim=facts["head_dim"],
                  intermediate_size=facts["width"], tie_word_embeddings=facts["tied"],
                  max_position_embeddings=131072, rms_norm_eps=1e-6, use_cache=False)
    if facts["kind"] == "qwen3":
        return hf.Qwen3Config(**common), hf.Qwen3ForCausalLM
    if facts["kind"] == "llama":
        return hf.LlamaConfig(**common), hf.LlamaForCausalLM
    if facts["kind"] == "qwen3_moe":
        return hf.Qwen3MoeConfig(**common, moe_intermediate_size=facts["expert_width"],
                                 num_experts=facts["experts"], num_experts_per_tok=facts["top_k"],
                                 norm_topk_prob=True), hf.Qwen3MoeForCausalLM
    return hf.GptOssConfig(**common, num_local_experts=facts["experts"],
                           num_experts_per_tok=facts["top_k"],
                           sliding_window=facts["window"]), hf.GptOssForCausalLM


LORA_NAMES = {"all": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
              "q,v": ["q_proj", "v_proj"]}


def add_lora(model, case):
    import peft

    config = peft.LoraConfig(r=case["lora"], lora_alpha=2 * case["lora"], task_type="CAUSAL_LM",
                             lora_dropout=case["lora_dropout"],
                             target_modules=LORA_NAMES[case["lora_on"]])
    if case["checkpoint"]:
        model.enable_input_require_grads()
    return peft.get_peft_model(model, config, autocast_adapter_dtype=case["lora_dtype"] == "fp32")


def build_hf(case, facts, device):
    config, model_class = hf_config(case, facts)
    dtype = torch.bfloat16 if case["state"] == "bf16" else torch.float32
    extra = dict(experts_implementation=case["experts_as"]) if "experts" in facts else {}
    with device:
        model = model_class._from_config(config, dtype=dtype, attn_implementation=case["attention"],
                                         **extra)
    model.train()
    if case["checkpoint"]:
        model.gradient_checkpointing_enable(dict(use_reentrant=False))
    if case["lora"]:
        model = add_lora(model, case)
    tokens = torch.randint(0, facts["vocab"], (case["batch"], case["seq"]), device=device)
    called = torch.compile(model) if case["compiled"] else model

    def forward_loss():
        with torch.autocast(device.type, torch.bfloat16, enabled=case["autocast"]):
            return called(input_ids=tokens, labels=tokens).loss

    def clip():
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)

    return Job(model, forward_loss, clip)


def titan_model(case, facts, device):
    """torchtitan's own class with the facts of the case; experts are balanced by its debug flag.
    The grouped GEMM's permutation is a GPU kernel: the dry path loops over the experts."""
    if facts["kind"] == "llama":
        from torchtitan.models.llama3 import Transformer, TransformerModelArgs

        # Its width is 2/3 x 4 x hidden x multiplier, up to a multiple.
        multiplier = facts["width"] / int(8 * facts["hidden"] / 3)
        arguments = TransformerModelArgs(
            dim=facts["hidden"], n_layers=facts["layers"], n_heads=facts["heads"],
            n_kv_heads=facts["kv_heads"], vocab_size=facts["vocab"], multiple_of=32,
            ffn_dim_multiplier=multiplier, rope_theta=500000, max_seq_len=case["seq"])
        return Transformer(arguments)
    from torchtitan.models.moe import MoEArgs
    from torchtitan.models.qwen3 import Qwen3Model, Qwen3ModelArgs

    experts = MoEArgs(num_experts=facts["experts"], num_shared_experts=0, top_k=facts["top_k"],
                      score_func="softmax", route_norm=True, score_before_experts=False,
                      load_balance_coeff=None, _debug_force_load_balance=True,
                      use_grouped_mm=device.type == "cuda")
    return Qwen3Model(Qwen3ModelArgs(
        dim=facts["hidden"], n_layers=facts["layers"], n_heads=facts["heads"],
        n_kv_heads=facts["kv_heads"], head_dim=facts["head_dim"], hidden_dim=facts["width"],
        vocab_size=facts["vocab"], max_seq_len=case["seq"], moe_enabled=True,
        moe_inter_dim=facts["expert_width"], moe_args=experts))


def titan_parallelize(model, case, facts, device, world):
    """Recompute, compilation and sharding in torchtitan's order, by its own functions."""
    from torch.distributed.device_mesh import init_device_mesh
    from torchtitan.config.job_config import ActivationCheckpoint, Compile
    from torchtitan.distributed.activation_checkpoint import apply_ac

    if facts["kind"] == "llama":
        import torchtitan.models.llama3.infra.parallelize as own
    else:
        import torchtitan.models.qwen3.infra.parallelize as own
    if case["ac"] != "none":
        mode = "selective" if case["ac"] == "op" else "full"
        apply_ac(model, ActivationCheckpoint(mode=mode, selective_ac_option="op"),
                 model_compile_enabled=case["compiled"], op_sac_save_list=own._op_sac_save_list)
    if case["compiled"]:
        own.apply_compile(model, Compile(enable=True))
    if case["fsdp"]:
        mesh = init_device_mesh(device.type, (world,), mesh_dim_names=("fsdp",))
        extra = {} if facts["kind"] == "llama" else dict(ep_degree=1, edp_mesh=None)
        own.apply_fsdp(model, mesh, param_dtype=torch.bfloat16, reduce_dtype=torch.float32,
                       pp_enabled=False, **extra)


def build_titan(case, facts, device, rank, world):
    import torch.distributed as dist
    from torchtitan.components.loss import cross_entropy_loss
    from torchtitan.distributed.utils import clip_grad_norm_

    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=rank,
                            world_size=world)
    with torch.device("meta"):
        model = titan_model(case, facts, device)
    titan_parallelize(model, case, facts, device, world)
    model.to_empty(device=device)
    with torch.no_grad():
        model.init_weights(buffer_device=device)
    model.train()
    tokens = torch.randint(0, facts["vocab"], (case["batch"], case["seq"]), device=device)
    if device.type == "cpu":  # its histc counts floats alone
        counted = torch.histc
        torch.histc = lambda values, **more: counted(values.float(), **more).long()
    loss_of = torch.compile(cross_entropy_loss) if case["compiled"] else cross_entropy_loss
    whole = torch.autocast(device.type, torch.bfloat16) if not case["fsdp"] \
        else contextlib.nullcontext()

    def forward_loss():
        with whole:
            return loss_of(model(tokens), tokens) / tokens.numel()

    def clip():
        clip_grad_norm_(model.parameters(), CLIP_NORM, foreach=True)

    return Job(model, forward_loss, clip)


def build(case, facts, device, rank, world):
    if case["engine"] == "hf":
        return build_hf(case, facts, device)
    return build_titan(case, facts, device, rank, world)
