"""`quantization.recipes`: the original's graph-wide switches, as rules for ops and as repairs."""

from __future__ import annotations

from lpot.config.schema import Config
from lpot.core.backend import Backend
from lpot.core.recipe import OpKey
from lpot.core.repairs import Repairs
from lpot.core.space import Capability, Rule, TensorRule

PLACE = "quantization.recipes"
_KEPT = TensorRule(dtype=("fp32",))


def switch_rules(config: Config, capability: Capability) -> tuple[Rule, ...]:
    """The ops that a switch keeps in FP32, by name."""
    switches = config.quantization.recipes
    ops = list(capability.ops.values())
    compute = [at for at, info in enumerate(ops) if info.can_be_low and not info.follower]
    if not compute:
        return ()
    first, last = compute[0], compute[-1]
    kept: dict[OpKey, str] = {}
    if not switches.first_conv_or_matmul_quantization:
        kept[ops[first].key] = "first_conv_or_matmul_quantization"
    if not switches.last_conv_or_matmul_quantization:
        kept[ops[last].key] = "last_conv_or_matmul_quantization"
    if not switches.pre_post_process_quantization:
        outside = (info for info in (*ops[:first], *ops[last + 1 :]) if info.can_be_low)
        kept |= {info.key: "pre_post_process_quantization" for info in outside}
    return tuple(
        Rule(key.name, _KEPT, _KEPT, path=f"{PLACE}.{switch}") for key, switch in kept.items()
    )


def asked_repairs(config: Config, backend: Backend) -> Repairs:
    """The repairs that are switched on, as far as the backend has them."""
    has, wanted = backend.repairs, _wanted(config)
    return Repairs(
        bias_correction=wanted.bias_correction and has.bias_correction,
        weight_correction=wanted.weight_correction and has.weight_correction,
    )


def missing_repairs(config: Config, backend: Backend) -> list[str]:
    """One sentence for each repair that the user asked for and the backend does not have."""
    has, wanted = backend.repairs, _wanted(config)
    missing = {
        "fast_bias_correction": wanted.bias_correction and not has.bias_correction,
        "weight_correction": wanted.weight_correction and not has.weight_correction,
    }
    asked = config.quantization.recipes.model_fields_set
    return [
        f"{PLACE}.{switch} is not supported by backend {backend.name} and has no effect"
        for switch in missing
        if missing[switch] and switch in asked
    ]


def _wanted(config: Config) -> Repairs:
    switches = config.quantization.recipes
    advance = config.quantization.advance
    bias = switches.fast_bias_correction or (advance is not None and bool(advance.bias_correction))
    return Repairs(bias_correction=bias, weight_correction=switches.weight_correction)
