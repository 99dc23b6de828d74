N=${N:-1}
python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer' data.max_prompt_length=$((1024*2)) \
    data.max_response_length=1024 actor_rollout_ref.actor.use_dynamic_bsz=True trainer.nnodes=${N} \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192 trainer.n_gpus_per_node=8 \
    actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.rollout.n=16 \
    actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=null \
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full
