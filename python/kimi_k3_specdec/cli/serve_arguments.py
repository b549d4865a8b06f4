"""The arguments of `vllm serve`, parsed by the installed vLLM itself, without a server and without a GPU."""

from __future__ import annotations

import enum
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from ..errors import UserError

MEMORY_BYTES = 288 << 30
"""Of an MI355X."""


def deployment(arguments: list[str]) -> dict[str, Any]:
    """The deployment that `vllm serve ARGUMENTS` would make; its platform is not known here.

    Raises `UserError` where vLLM is not installed, or refuses the arguments itself.
    """
    if importlib.util.find_spec("vllm") is None:
        raise UserError("vLLM is not installed here: its arguments cannot be parsed",
                        "install `kimi-k3-specdec[vllm]`, or pass the configuration as JSON (`--example` prints one)")
    prepare()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from ..runtime import facts
    from ..runtime.platforms import PlatformFacts

    parsed = make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(arguments)
    parsed.model = getattr(parsed, "model_tag", None) or parsed.model
    try:
        config = AsyncEngineArgs.from_cli_args(parsed).create_engine_config()
    except (ValueError, OSError, NotImplementedError) as error:
        raise UserError(f"vLLM refuses these arguments: {error}", "mend them as vLLM says, then check again") from error
    found = facts.deployment(config, platform=PlatformFacts("not asked"))
    found["platform"] = None
    return found


def prepare() -> None:
    """Lets vLLM resolve its configuration as on the serving machine, where this one has no GPU."""
    # Stdout is for the answer.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    if importlib.util.find_spec("amdsmi") is not None:
        return
    # Without a visible device vLLM keeps Triton, and with it the V2 model runner, only when none is asked for.
    os.environ.setdefault("HIP_VISIBLE_DEVICES", "")
    sys.modules["amdsmi"] = stand_in()


def stand_in() -> ModuleType:
    """AMD's `amdsmi` as far as vLLM asks it while it resolves a configuration: eight MI355X."""
    module = ModuleType("amdsmi")
    module.__spec__ = importlib.util.spec_from_loader("amdsmi", loader=None)
    asic = {"market_name": "AMD Instinct MI355X", "device_id": "0x75a3", "target_graphics_version": "gfx950"}
    module.AmdSmiException = type("AmdSmiException", (Exception,), {})
    module.AmdSmiMemoryType = enum.IntEnum("AmdSmiMemoryType", "VRAM VIS_VRAM GTT", start=0)
    module.amdsmi_get_gpu_memory_total = lambda *_: MEMORY_BYTES
    module.amdsmi_init = module.amdsmi_shut_down = lambda *_: None
    module.amdsmi_get_processor_handles = lambda: list(range(8))
    module.amdsmi_get_gpu_asic_info = lambda _: asic
    module.amdsmi_get_gpu_device_uuid = lambda handle: f"stand-in {handle}"
    module.amdsmi_topo_get_link_type = lambda *_: {"hops": 1, "type": 2}
    module.amdsmi_topo_get_numa_node_number = lambda _: 0
    return module
