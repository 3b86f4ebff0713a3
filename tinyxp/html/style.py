"""The style of every page: light and dark, from 400 pixels of width on, no font but the reader's own."""

from __future__ import annotations

STYLE = """
:root { --paper: #fbfaf7; --card: #ffffff; --ink: #1c1b19; --faint: #5c5850; --edge: #d8d3c8;
  --accent: #1a5599; --heat: #1d5ba4; --cold: #9a4312; --on-weak: #000000; --on-strong: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15171a; --card: #1c1f23; --ink: #e9e6e0; --faint: #a9a59c; --edge: #3a3e44;
    --accent: #8dbdf2; --heat: #568ac5; --cold: #bc7750; --on-weak: #ffffff; --on-strong: #000000; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0 auto; padding: 1rem; max-width: 78rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
p, output, figcaption { overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 0 0 .3rem; }
p { max-width: 44rem; margin: .4rem 0 .8rem; }
a { color: var(--accent); }
code, .token { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .92em; }
section { background: var(--card); border: 1px solid var(--edge); border-radius: .6rem; padding: 1rem;
  margin: 1rem 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; margin: .8rem 0; list-style: none; }
.note { color: var(--faint); font-size: .9rem; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--faint); padding-bottom: .3rem; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid var(--edge); white-space: nowrap; }
th { font-weight: 600; }
th[scope=row], th:first-child { text-align: left; }
td.shaded { color: var(--on-weak);
  background: color-mix(in srgb, var(--hue, var(--heat)) calc(var(--w) * 100%), var(--card)); }
td.negative { --hue: var(--cold); }
td.strong { color: var(--on-strong); }
.bar { display: inline-block; width: 9rem; height: .7rem; vertical-align: middle; text-align: left; }
.bar span { display: block; height: 100%; width: calc(var(--w) * 100%); min-width: 1px;
  background: var(--heat); }
.controls { display: flex; flex-wrap: wrap; align-items: center; gap: .6rem 1.4rem; margin: .6rem 0; }
.field { display: inline-flex; align-items: center; gap: .5rem; max-width: 100%;
  white-space: nowrap; }
.field output { min-width: 2.5ch; font-variant-numeric: tabular-nums; }
input[type=range] { width: 9rem; accent-color: var(--heat); }
select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--faint);
  border-radius: .3rem; padding: .2rem .4rem; min-width: 0; }
.grid { stroke: var(--edge); fill: none; }
.curve { fill: none; stroke: var(--faint); stroke-width: 2; }
details summary { cursor: pointer; padding: .3rem 0; }
"""
