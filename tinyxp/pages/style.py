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
p, output, .chip, figcaption { overflow-wrap: anywhere; }
th .token { display: inline-block; max-inline-size: 10rem; overflow: hidden; text-overflow: ellipsis;
  vertical-align: bottom; }
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
input[type=checkbox] { width: 1.15rem; height: 1.15rem; accent-color: var(--heat); }
select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--faint);
  border-radius: .3rem; padding: .2rem .4rem; min-width: 0; }
fieldset { border: 0; padding: 0; margin: 0; display: flex; flex-wrap: wrap; align-items: center;
  gap: .3rem; }
legend { float: left; padding: 0; margin-right: .2rem; }
.pill { position: relative; }
.pill input { position: absolute; inset: 0; margin: 0; opacity: 0; cursor: pointer; }
.pill span { display: block; min-width: 2rem; text-align: center; padding: .1rem .4rem;
  border: 1px solid var(--faint); border-radius: 1rem; }
.pill input:checked + span { background: var(--ink); color: var(--card); }
.pill input:focus-visible + span { outline: 3px solid var(--accent); outline-offset: 2px; }
.chips { display: flex; flex-wrap: wrap; gap: .4rem; padding: 0; margin: .6rem 0; list-style: none; }
.chip { color: inherit; background: var(--paper); border: 1px solid var(--faint);
  border-radius: .4rem; padding: .15rem .5rem; max-width: 100%; cursor: pointer; }
.chip:hover, .chip:focus-visible, .chip[aria-pressed=true] { background: var(--ink); color: var(--card); }
.map { border-collapse: separate; border-spacing: 1px; }
.map th, .map td { border: 0; }
.map thead th { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left;
  font-weight: 400; padding: .3rem 0; }
.map thead th:first-child { writing-mode: horizontal-tb; transform: none; vertical-align: bottom;
  color: var(--faint); padding-right: .6rem; }
.map tbody th { font-weight: 400; padding: 0 .6rem 0 0; position: sticky; left: 0;
  background: var(--card); }
.map td { width: 2.3rem; min-width: 2.3rem; height: 2.1rem; padding: 0; text-align: center;
  font-size: .8rem; }
.map.small td { width: .8rem; min-width: .8rem; height: .8rem; }
.map.small th { font-size: .7rem; line-height: 1; }
.map td.masked {
  background: repeating-linear-gradient(45deg, var(--edge) 0 1px, transparent 1px 6px); }
.map td.future { --hue: var(--cold); }
.map td.edge { box-shadow: inset 2px -2px var(--faint); }
.map tr.chosen th { font-weight: 700; text-decoration: underline; }
.map tr.chosen td { box-shadow: inset 0 2px var(--ink), inset 0 -2px var(--ink); }
.lens-table th + th, .lens-table thead th { text-align: center; }
.lens-table td { text-align: center; line-height: 1.15; padding: .2rem .35rem; }
.lens-table td .token, .lens-table thead .token { display: block; max-width: 8rem; overflow: hidden;
  text-overflow: ellipsis; }
.lens-table th[scope=row] { position: sticky; left: 0; background: var(--card); }
.chart { width: 100%; min-width: 36rem; max-width: 60rem; }
.chart text { font: 14px system-ui, sans-serif; fill: var(--faint); }
.grid { stroke: var(--edge); fill: none; }
.line { fill: none; stroke: var(--faint); stroke-opacity: .55; stroke-width: 1.5; }
.line.chosen { stroke: var(--accent); stroke-opacity: 1; stroke-width: 3; }
.columns { width: 100%; max-width: 60rem; height: 6rem; }
.column { stroke: var(--heat); }
.clocks { display: flex; flex-wrap: wrap; gap: 1rem .2rem; margin: .6rem 0; }
.clock { width: 10.5rem; margin: 0; text-align: center; font-size: .85rem; }
.clock svg { width: 7.5rem; }
.dial { fill: none; stroke: var(--faint); stroke-width: 1.5; }
.hand { stroke: var(--accent); stroke-width: 4; stroke-linecap: round; }
.trail { fill: var(--faint); fill-opacity: .5; }
.beside { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 1rem 2rem; }
.plot { margin: 0; width: 24rem; max-width: 100%; }
.plot svg { width: 100%; height: auto; }
.plot path, .plot polyline, .plot circle { vector-effect: non-scaling-stroke; }
.curve { fill: none; stroke: var(--faint); stroke-width: 2; }
.dot { fill: var(--heat); stroke: var(--card); fill-opacity: .85; }
details summary { cursor: pointer; padding: .3rem 0; }
"""
