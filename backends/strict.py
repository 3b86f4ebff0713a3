"""array_api_strict with every optional feature off: what runs here runs on any conforming library."""

from __future__ import annotations

from typing import Any

import array_api_strict as xp
import numpy as np

from tinyxp.registry import Backend


class StrictBackend(Backend):
    """Arrays on one of three devices, none of which mixes with another."""

    turned_off = False

    def on_select(self) -> None:
        """Turn the optional features off, once; importing the library for other purposes keeps them."""
        if not self.turned_off:
            xp.set_array_api_strict_flags(
                api_version="2024.12",
                boolean_indexing=False,
                data_dependent_shapes=False,
                enabled_extensions=(),
            )
            self.turned_off = True

    def to_numpy(self, x: Any) -> np.ndarray:
        return np.asarray(x.to_device(xp.Device("CPU_DEVICE")))

    def device(self, device: Any) -> Any:
        device = super().device(device)
        return xp.Device(device) if isinstance(device, str) else device

    def devices(self) -> list[str]:
        return ["CPU_DEVICE", "device1", "device2"]


backend = StrictBackend("array_api_strict", xp)
