"""More architectures of transformers: queries, prompts, states, codecs, several towers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from zoo.torch_transformers import (
    _MOE,
    _STAGES,
    _TEXT,
    _TOWERS,
    _VISION,
    _WAVE,
    Batch,
    Entry,
    both,
    ids,
    only_ids,
    pair,
    pixels,
    sound,
)

_RESNET = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "backbone_config": {
        "model_type": "resnet",
        **_STAGES,
        "embedding_size": 16,
        "out_features": ["stage4"],
    },
    "num_queries": 5,
}


def video(frames: int = 4, size: int = 32) -> Callable[[], Batch]:
    return lambda: {"pixel_values": torch.randn(1, frames, 3, size, size)}


MORE: Mapping[str, Entry] = {
    "detr": Entry("DetrForObjectDetection", pixels(64), _RESNET),
    "conditional-detr": Entry("ConditionalDetrForObjectDetection", pixels(64), _RESNET),
    "table-transformer": Entry("TableTransformerForObjectDetection", pixels(64), _RESNET),
    "sam": Entry(
        "SamModel",
        lambda: {
            "pixel_values": torch.randn(1, 3, 64, 64),
            "input_points": 64 * torch.rand(1, 1, 2, 2),
        },
        {
            "vision_config": {
                **_VISION,
                "image_size": 64,
                "num_pos_feats": 16,
                "output_channels": 32,
                "window_size": 4,
                "global_attn_indexes": [1],
                "mlp_dim": 64,
            },
            "prompt_encoder_config": {
                "hidden_size": 32,
                "image_size": 64,
                "patch_size": 8,
                "mask_input_channels": 4,
            },
            "mask_decoder_config": {
                "hidden_size": 32,
                "mlp_dim": 64,
                "num_attention_heads": 4,
                "iou_head_hidden_dim": 32,
            },
        },
    ),
    "owlvit": Entry("OwlViTModel", both(), _TOWERS),
    "groupvit": Entry(
        "GroupViTModel",
        both(),
        {
            **_TOWERS,
            "projection_intermediate_dim": 32,
            "vision_config": {
                **_VISION,
                "depths": [1, 1, 1],
                "num_group_tokens": [4, 2, 0],
                "num_output_groups": [4, 2, 2],
            },
        },
    ),
    "clipseg": Entry("CLIPSegModel", both(), _TOWERS),
    "videomae": Entry(
        "VideoMAEForVideoClassification", video(), {"num_frames": 4, "tubelet_size": 2}
    ),
    "timesformer": Entry("TimesformerForVideoClassification", video(), {"num_frames": 4}),
    "vivit": Entry(
        "VivitForVideoClassification", video(), {"num_frames": 4, "tubelet_size": [2, 8, 8]}
    ),
    "canine": Entry("CanineForSequenceClassification", only_ids, {"local_transformer_stride": 4}),
    "layoutlmv3": Entry(
        "LayoutLMv3ForSequenceClassification",
        only_ids,
        {"visual_embed": False, "coordinate_size": 6, "shape_size": 4},
    ),
    "xmod": Entry("XmodForSequenceClassification", only_ids, {"default_language": "en_XX"}),
    "yoso": Entry("YosoForSequenceClassification", only_ids, {"use_expectation": True}),
    "speecht5": Entry(
        "SpeechT5ForSpeechToText", lambda: {**sound(), "decoder_input_ids": ids()}, _WAVE
    ),
    "wav2vec2-conformer": Entry("Wav2Vec2ConformerForCTC", sound, _WAVE),
    "unispeech": Entry("UniSpeechForCTC", sound, _WAVE),
    "encodec": Entry(
        "EncodecModel",
        lambda: {"input_values": torch.randn(1, 1, 640)},
        {
            "num_filters": 8,
            "codebook_size": 16,
            "upsampling_ratios": [4, 2],
            "hidden_size": 16,
            "codebook_dim": 16,
        },
    ),
    "mamba2": Entry(
        "Mamba2ForCausalLM",
        only_ids,
        {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 4},
    ),
    "falcon-mamba": Entry("FalconMambaForCausalLM", only_ids, {"state_size": 4}),
    "recurrent-gemma": Entry(
        "RecurrentGemmaForCausalLM", only_ids, {"lru_width": 32, "attention_window_size": 8}
    ),
    "switch-transformers": Entry(
        "SwitchTransformersForConditionalGeneration", pair, {"num_experts": 4}
    ),
    "umt5": Entry("UMT5ForConditionalGeneration", pair),
    "prophetnet": Entry(
        "ProphetNetForConditionalGeneration",
        pair,
        {
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
        },
    ),
    "pegasus-x": Entry("PegasusXForConditionalGeneration", pair, {"block_size": 4}),
    "deepseek-v3": Entry(
        "DeepseekV3ForCausalLM",
        only_ids,
        {
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "qk_rope_head_dim": 4,
            "head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
        },
    ),
    "qwen3-moe": Entry("Qwen3MoeForCausalLM", only_ids, _MOE),
    "granite-moe": Entry(
        "GraniteMoeForCausalLM", only_ids, {"num_local_experts": 4, "num_experts_per_tok": 2}
    ),
    "gemma3": Entry("Gemma3ForCausalLM", only_ids),
    "olmo2": Entry("Olmo2ForCausalLM", only_ids),
    "glm": Entry("GlmForCausalLM", only_ids),
    "nemotron": Entry("NemotronForCausalLM", only_ids),
    "trocr": Entry(
        "TrOCRForCausalLM", only_ids, {"decoder_attention_heads": 4, "is_decoder": True}
    ),
    "git": Entry("GitForCausalLM", both(), {**_TEXT, "vision_config": _VISION}),
    "visual-bert": Entry("VisualBertModel", only_ids),
    "mobilevit-v2": Entry(
        "MobileViTV2ForImageClassification",
        pixels(64),
        {"width_multiplier": 0.25, "image_size": 64, "patch_size": 2},
    ),
    "hiera": Entry(
        "HieraForImageClassification",
        pixels(64),
        {
            "image_size": [64, 64],
            "patch_size": [7, 7],
            "patch_stride": [4, 4],
            "patch_padding": [3, 3],
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [1, 2],
            "query_stride": [2, 2],
            "masked_unit_size": [8, 8],
            "num_query_pool": 1,
        },
    ),
    "swin2sr": Entry(
        "Swin2SRForImageSuperResolution",
        pixels(),
        {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "patch_size": 1},
    ),
    "superpoint": Entry(
        "SuperPointForKeypointDetection",
        pixels(64),
        {"encoder_hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16},
    ),
    "decision-transformer": Entry(
        "DecisionTransformerModel",
        lambda: {
            "states": torch.randn(2, 5, 17),
            "actions": torch.randn(2, 5, 4),
            "rewards": torch.randn(2, 5, 1),
            "returns_to_go": torch.randn(2, 5, 1),
            "timesteps": torch.arange(5).repeat(2, 1),
            "attention_mask": torch.ones(2, 5),
        },
        {"state_dim": 17, "act_dim": 4, "max_ep_len": 20},
    ),
    "patchtsmixer": Entry(
        "PatchTSMixerForPrediction",
        lambda: {"past_values": torch.randn(2, 32, 3)},
        {"context_length": 32, "prediction_length": 4, "num_input_channels": 3},
    ),
}
