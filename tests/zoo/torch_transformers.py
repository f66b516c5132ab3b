"""Architectures of transformers with tiny random weights: nothing is downloaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Batch = Mapping[str, torch.Tensor]
TOKENS, LENGTH, IMAGE, SAMPLES = 64, 12, 32, 1200

# Every architecture takes of these what its config knows.
TINY: Mapping[str, Any] = {
    "vocab_size": TOKENS,
    "hidden_size": 32,
    "embedding_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "dim": 32,
    "emb_dim": 32,
    "word_embed_proj_dim": 32,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "intermediate_size": 64,
    "ffn_dim": 64,
    "hidden_dim": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "d_ff": 64,
    "d_kv": 8,
    "d_inner": 64,
    "max_position_embeddings": 64,
    "max_source_positions": 64,
    "max_target_positions": 64,
    "n_positions": 64,
    "image_size": IMAGE,
    "patch_size": 8,
    "num_labels": 3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "use_cache": False,
}


def ids(rows: int = 2, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, TOKENS, (rows, length))


def text() -> Batch:
    return {"input_ids": ids(), "attention_mask": torch.ones(2, LENGTH, dtype=torch.long)}


def only_ids() -> Batch:
    return {"input_ids": ids()}


def pair() -> Batch:
    return {"input_ids": ids(), "decoder_input_ids": ids(2, 7)}


def pixels(size: int = IMAGE) -> Callable[[], Batch]:
    return lambda: {"pixel_values": torch.randn(2, 3, size, size)}


def sound() -> Batch:
    return {"input_values": torch.randn(2, SAMPLES)}


def both(size: int = IMAGE) -> Callable[[], Batch]:
    return lambda: {**text(), "pixel_values": torch.randn(2, 3, size, size)}


@dataclass(frozen=True)
class Entry:
    """A class of transformers, what its tiny config needs besides TINY, and its inputs."""

    model: str
    data: Callable[[], Batch] = text
    given: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> nn.Module:
        transformers = importlib.import_module("transformers")
        kind: Any = getattr(transformers, self.model)
        config: Any = kind.config_class
        known = config().to_dict()
        tiny = {name: value for name, value in TINY.items() if name in known}
        made: nn.Module = kind(config(**{**tiny, **self.given}))
        return made.eval()


_STAGES = {"hidden_sizes": [16, 24, 32, 32], "depths": [1, 1, 1, 1]}
_WAVE = {
    "conv_dim": (16, 16),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
_TEXT = {key: TINY[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers")} | {
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "eos_token_id": 2,
}
_VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": IMAGE,
    "patch_size": 8,
}
_TOWERS = {"text_config": _TEXT, "vision_config": _VISION}
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

ENTRIES: Mapping[str, Entry] = {
    # Encoders of text.
    "bert": Entry("BertForSequenceClassification"),
    "roberta": Entry("RobertaForTokenClassification"),
    "xlm-roberta": Entry("XLMRobertaForSequenceClassification"),
    "distilbert": Entry("DistilBertForSequenceClassification"),
    "albert": Entry("AlbertForMaskedLM"),
    "electra": Entry("ElectraForQuestionAnswering"),
    "mpnet": Entry("MPNetForSequenceClassification"),
    "deberta": Entry("DebertaForSequenceClassification"),
    "deberta-v2": Entry("DebertaV2ForSequenceClassification"),
    "convbert": Entry("ConvBertForSequenceClassification"),
    "mobilebert": Entry(
        "MobileBertForSequenceClassification",
        given={"true_hidden_size": 32, "intra_bottleneck_size": 32},
    ),
    "squeezebert": Entry("SqueezeBertForSequenceClassification"),
    "funnel": Entry(
        "FunnelForSequenceClassification",
        given={"block_sizes": [1, 1], "d_head": 8, "num_decoder_layers": 1},
    ),
    "fnet": Entry("FNetForSequenceClassification", only_ids),
    "nystromformer": Entry(
        "NystromformerForSequenceClassification",
        given={"num_landmarks": LENGTH, "segment_means_seq_len": LENGTH},
    ),
    "big-bird": Entry(
        "BigBirdForSequenceClassification", given={"attention_type": "original_full"}
    ),
    "longformer": Entry("LongformerForSequenceClassification", given={"attention_window": [4, 4]}),
    "xlnet": Entry("XLNetForSequenceClassification"),
    "xlm": Entry("XLMForSequenceClassification"),
    "ernie": Entry("ErnieForSequenceClassification"),
    "megatron-bert": Entry("MegatronBertForSequenceClassification"),
    "rembert": Entry(
        "RemBertForSequenceClassification",
        given={"input_embedding_size": 16, "output_embedding_size": 16},
    ),
    "roformer": Entry("RoFormerForSequenceClassification"),
    "modernbert": Entry(
        "ModernBertForSequenceClassification", given={"cls_token_id": 1, "sep_token_id": 2}
    ),
    "esm": Entry("EsmForSequenceClassification"),
    "ibert": Entry("IBertForSequenceClassification"),
    "layoutlm": Entry("LayoutLMForSequenceClassification"),
    "splinter": Entry("SplinterForQuestionAnswering"),
    "camembert": Entry("CamembertForSequenceClassification"),
    "data2vec-text": Entry("Data2VecTextForSequenceClassification"),
    # Decoders.
    "gpt2": Entry("GPT2LMHeadModel"),
    "gpt-neo": Entry("GPTNeoForCausalLM", given={"attention_types": [[["global", "local"], 1]]}),
    "gpt-neox": Entry("GPTNeoXForCausalLM"),
    "gptj": Entry("GPTJForCausalLM", given={"rotary_dim": 4}),
    "gpt-bigcode": Entry("GPTBigCodeForCausalLM"),
    "opt": Entry("OPTForCausalLM"),
    "bloom": Entry("BloomForCausalLM"),
    "llama": Entry("LlamaForCausalLM"),
    "mistral": Entry("MistralForCausalLM"),
    "mixtral": Entry("MixtralForCausalLM", given={"num_local_experts": 4}),
    "qwen2": Entry("Qwen2ForCausalLM"),
    "qwen3": Entry("Qwen3ForCausalLM"),
    "qwen2-moe": Entry(
        "Qwen2MoeForCausalLM", given={**_MOE, "shared_expert_intermediate_size": 16}
    ),
    "olmoe": Entry("OlmoeForCausalLM", given=_MOE),
    "olmo": Entry("OlmoForCausalLM"),
    "gemma": Entry("GemmaForCausalLM"),
    "gemma2": Entry("Gemma2ForCausalLM"),
    "phi": Entry("PhiForCausalLM"),
    "phi3": Entry("Phi3ForCausalLM"),
    "falcon": Entry("FalconForCausalLM"),
    "stablelm": Entry("StableLmForCausalLM"),
    "starcoder2": Entry("Starcoder2ForCausalLM"),
    "codegen": Entry("CodeGenForCausalLM", given={"rotary_dim": 4}),
    "cohere": Entry("CohereForCausalLM"),
    "granite": Entry("GraniteForCausalLM"),
    "persimmon": Entry("PersimmonForCausalLM"),
    "mpt": Entry("MptForCausalLM"),
    "mamba": Entry("MambaForCausalLM", only_ids, {"state_size": 4}),
    "rwkv": Entry("RwkvForCausalLM", only_ids, {"attention_hidden_size": 32}),
    "ctrl": Entry("CTRLLMHeadModel", given={"dff": 64}),
    "xglm": Entry("XGLMForCausalLM", given={"attention_heads": 4}),
    "biogpt": Entry("BioGptForCausalLM"),
    "openai-gpt": Entry("OpenAIGPTForSequenceClassification"),
    # Encoders with decoders.
    "t5": Entry("T5ForConditionalGeneration", pair),
    "mt5": Entry("MT5ForConditionalGeneration", pair),
    "longt5": Entry("LongT5ForConditionalGeneration", pair),
    "bart": Entry("BartForConditionalGeneration", pair),
    "bart-classifier": Entry("BartForSequenceClassification", lambda: {"input_ids": _ended()}),
    "mbart": Entry("MBartForConditionalGeneration", pair),
    "marian": Entry("MarianMTModel", pair),
    "pegasus": Entry("PegasusForConditionalGeneration", pair),
    "blenderbot": Entry("BlenderbotForConditionalGeneration", pair),
    "m2m-100": Entry("M2M100ForConditionalGeneration", pair),
    "led": Entry(
        "LEDForConditionalGeneration",
        pair,
        {"attention_window": 4, "max_encoder_position_embeddings": 64},
    ),
    "plbart": Entry("PLBartForConditionalGeneration", pair),
    # Images.
    "vit": Entry("ViTForImageClassification", pixels()),
    "deit": Entry("DeiTForImageClassification", pixels()),
    "beit": Entry("BeitForImageClassification", pixels(), {"out_indices": None}),
    "data2vec-vision": Entry(
        "Data2VecVisionForImageClassification", pixels(), {"out_indices": [0, 1, 1, 1]}
    ),
    "dinov2": Entry("Dinov2ForImageClassification", pixels()),
    "swin": Entry(
        "SwinForImageClassification",
        pixels(),
        {"patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2},
    ),
    "swinv2": Entry(
        "Swinv2ForImageClassification",
        pixels(),
        {"patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2},
    ),
    "convnext": Entry("ConvNextForImageClassification", pixels(), {**_STAGES, "patch_size": 4}),
    "convnextv2": Entry("ConvNextV2ForImageClassification", pixels(), {**_STAGES, "patch_size": 4}),
    "resnet": Entry("ResNetForImageClassification", pixels(), {**_STAGES, "embedding_size": 16}),
    "regnet": Entry(
        "RegNetForImageClassification",
        pixels(),
        {**_STAGES, "embedding_size": 16, "groups_width": 8},
    ),
    "bit": Entry(
        "BitForImageClassification",
        pixels(),
        {**_STAGES, "embedding_size": 16, "num_groups": 4},
    ),
    "mobilenet-v1": Entry(
        "MobileNetV1ForImageClassification", pixels(), {"depth_multiplier": 0.25}
    ),
    "mobilenet-v2": Entry(
        "MobileNetV2ForImageClassification", pixels(), {"depth_multiplier": 0.25}
    ),
    "mobilevit": Entry(
        "MobileViTForImageClassification",
        pixels(64),
        {
            "image_size": 64,
            "patch_size": 2,
            "hidden_sizes": [32, 32, 32],
            "neck_hidden_sizes": [8, 16, 16, 24, 24, 32, 32],
        },
    ),
    "efficientnet": Entry(
        "EfficientNetForImageClassification",
        pixels(),
        {"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320},
    ),
    "segformer": Entry(
        "SegformerForSemanticSegmentation",
        pixels(),
        {
            "depths": [1] * 4,
            "hidden_sizes": [16, 16, 32, 32],
            "num_attention_heads": [1, 2, 2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    "poolformer": Entry("PoolFormerForImageClassification", pixels(), {**_STAGES}),
    "levit": Entry(
        "LevitForImageClassificationWithTeacher",
        pixels(64),
        {
            "image_size": 64,
            "hidden_sizes": [16, 32, 48],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
            "patch_size": 16,
        },
    ),
    "pvt": Entry(
        "PvtForImageClassification",
        pixels(),
        {"depths": [1] * 4, "hidden_sizes": [16, 16, 32, 32], "num_attention_heads": [1, 2, 2, 2]},
    ),
    "focalnet": Entry(
        "FocalNetForImageClassification",
        pixels(),
        {
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [1, 1],
            "hidden_sizes": [16, 32],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
    ),
    "yolos": Entry(
        "YolosForObjectDetection",
        pixels(),
        {"image_size": [IMAGE, IMAGE], "num_detection_tokens": 5},
    ),
    "dpt": Entry(
        "DPTForDepthEstimation",
        pixels(),
        {
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 16, 16, 16],
            "fusion_hidden_size": 16,
        },
    ),
    "glpn": Entry(
        "GLPNForDepthEstimation",
        pixels(64),
        {
            "depths": [1] * 4,
            "hidden_sizes": [16, 16, 32, 32],
            "num_attention_heads": [1, 2, 2, 2],
            "decoder_hidden_size": 16,
        },
    ),
    "vit-mae": Entry("ViTMAEModel", pixels(), {"mask_ratio": 0.0}),
    # Sound.
    "wav2vec2": Entry("Wav2Vec2ForCTC", sound, _WAVE),
    "hubert": Entry("HubertForCTC", sound, _WAVE),
    "wavlm": Entry("WavLMForSequenceClassification", sound, _WAVE),
    "unispeech-sat": Entry("UniSpeechSatForCTC", sound, _WAVE),
    "sew": Entry("SEWForCTC", sound, {**_WAVE, "squeeze_factor": 1}),
    "audio-spectrogram": Entry(
        "ASTForAudioClassification",
        lambda: {"input_values": torch.randn(2, 32, 16)},
        {"max_length": 32, "num_mel_bins": 16, "frequency_stride": 8, "time_stride": 8},
    ),
    "whisper": Entry(
        "WhisperForConditionalGeneration",
        lambda: {"input_features": torch.randn(2, 16, 64), "decoder_input_ids": ids(2, 7)},
        {"num_mel_bins": 16, "max_source_positions": 32},
    ),
    "speech-to-text": Entry(
        "Speech2TextForConditionalGeneration",
        lambda: {"input_features": torch.randn(2, 40, 16), "decoder_input_ids": ids(2, 7)},
        {"input_feat_per_channel": 16, "conv_channels": 32},
    ),
    # Several kinds of input.
    "clip": Entry("CLIPModel", both(), _TOWERS),
    "siglip": Entry("SiglipModel", both(), _TOWERS),
    "chinese-clip": Entry("ChineseCLIPModel", both(), _TOWERS),
    "altclip": Entry(
        "AltCLIPModel", both(), {**_TOWERS, "text_config": {**_TEXT, "project_dim": 32}}
    ),
    "blip": Entry(
        "BlipForConditionalGeneration",
        both(),
        {
            **_TOWERS,
            "text_config": {
                **_TEXT,
                "encoder_hidden_size": 32,
                "bos_token_id": 1,
                "sep_token_id": 2,
            },
        },
    ),
    "vilt": Entry("ViltModel", both()),
    "time-series": Entry(
        "TimeSeriesTransformerModel",
        lambda: _series(),
        {
            "prediction_length": 4,
            "context_length": 8,
            "lags_sequence": [1, 2],
            "input_size": 1,
            "num_time_features": 1,
        },
    ),
    "patchtst": Entry(
        "PatchTSTForPrediction",
        lambda: {"past_values": torch.randn(2, 32, 3)},
        {"context_length": 32, "prediction_length": 4, "num_input_channels": 3},
    ),
}


def _ended() -> torch.Tensor:
    made = ids()
    made[:, -1] = 2
    return made


def _series() -> Batch:
    return {
        "past_values": torch.randn(2, 10),
        "past_time_features": torch.randn(2, 10, 1),
        "past_observed_mask": torch.ones(2, 10),
        "future_values": torch.randn(2, 4),
        "future_time_features": torch.randn(2, 4, 1),
    }
