"""``tinyxp backends``: which array libraries are installed, with their dtypes and devices."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, name -> facts.")
def backends(as_json: bool) -> None:
    """List the array libraries; the installed ones with version, dtypes and devices."""
    from tinyxp.registry import available_backends, backend

    facts: dict[str, dict[str, Any]] = {}
    for name, version in available_backends().items():
        facts[name] = {"version": version}
        if version is not None:
            try:
                adapter = backend(name)
            except (ImportError, ValueError) as error:
                facts[name]["error"] = str(error)
            else:
                facts[name] |= {"dtypes": list(adapter.dtypes()), "devices": adapter.devices()}
    if as_json:
        click.echo(json.dumps(facts))
        return
    for name, fact in facts.items():
        if fact["version"] is None:
            click.echo(f"{name:<17} not installed")
        elif "error" in fact:
            click.echo(f"{name:<17} {fact['version']:<14} {fact['error']}")
        else:
            dtypes, devices = " ".join(fact["dtypes"]), " ".join(fact["devices"])
            click.echo(f"{name:<17} {fact['version']:<14} {dtypes:<35} {devices}")
