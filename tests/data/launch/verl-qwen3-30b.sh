# Ran on one to four nodes of eight H20 with 96 GB: verl, grpo_trainer/run_qwen3moe-30b_megatron_96gb.sh
prompt=$((1024 * 2))
response=$((1024 * 8))
python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer' trainer.nnodes=${N:-1} \
    trainer.n_gpus_per_node=8 actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B-Base \
    data.max_prompt_length=${prompt} data.max_response_length=${response} \
    actor_rollout_ref.rollout.n=16 actor_rollout_ref.actor.ppo_mini_batch_size=128 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((prompt + response)) \
    actor_rollout_ref.actor.megatron.param_offload=True \
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=8 \
    actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1 \
    +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True \
    +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_offload_fraction=1. \
    +actor_rollout_ref.actor.optim.override_optimizer_config.use_precision_aware_optimizer=True
