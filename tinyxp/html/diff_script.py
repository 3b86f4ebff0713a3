"""The style of the page of a comparison, and what moves on it."""

from __future__ import annotations

STYLE = """
.answer { font-size: 1.15rem; max-width: 56rem; }
h1, .long, dd { overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1rem 0 .2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; max-width: 60rem;
  font-size: .95rem; }
dt { font-weight: 600; }
dd { margin: 0; }
dd .token { display: inline-block; border: 1px solid var(--edge); border-radius: .3rem; padding: 0 .3rem; }
.words { margin-bottom: 1rem; }
.words th, .words td { text-align: left; white-space: normal; }
.tall .scroll { max-height: 85vh; overflow: auto; }
.points { font-size: .85rem; }
.points th, .points td { padding: .2rem .4rem; }
.points thead th { position: sticky; top: 0; z-index: 1; background: var(--card);
  box-shadow: inset 0 -2px var(--edge); }
.points td:nth-child(2), .points td:last-child, .points thead th:nth-child(2), .points thead th:last-child {
  text-align: left; }
.points code { scroll-margin: 5rem; }
.points tr:has(.first), .points tr:has(:target) { outline: 3px solid var(--accent); outline-offset: -3px; }
.points tr:has([data-parts]) { background: color-mix(in srgb, var(--cold) 14%, var(--card)); }
.points .first { background: var(--accent); color: var(--card); border-radius: .3rem; padding: 0 .4rem; }
.fault, .shape { font-weight: 700; }
.exact { color: var(--faint); }
figure { margin: 0; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem 1.5rem; }
.maps { display: flex; gap: 1.5rem; overflow-x: auto; padding: 6px; }
.charts figure { width: 26rem; max-width: 100%; }
.curves { display: block; width: 100%; }
.scroll .curves { min-width: 40rem; max-width: 50rem; }
.curves text, .heat text { font: 13px system-ui, sans-serif; fill: var(--faint); }
.heat text { font-size: 11px; }
.curve.error { stroke: var(--accent); }
.curve.cost { stroke: var(--cold); stroke-dasharray: 6 4; }
.point { stroke: none; }
.point.error { fill: var(--accent); }
.point.cost { fill: var(--card); stroke: var(--cold); stroke-width: 1.5; }
.mark { stroke: var(--ink); stroke-dasharray: 2 3; }
.entry { white-space: nowrap; margin-right: 1rem; }
.pen { width: 2.5rem; height: .75rem; }
.maps figure { flex: 0 1 21rem; min-width: 17rem; text-align: center; }
.heat { width: 100%; display: block; }
.heat rect { fill: var(--heat); }
.heat rect.less { fill: var(--cold); }
.heat rect.cursor { fill: none; stroke: var(--ink); stroke-width: 2; vector-effect: non-scaling-stroke; }
.heat .broken { fill: transparent; }
.heat .cross { stroke: var(--ink); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.heat .cross, .heat .cursor { pointer-events: none; }
"""

SCRIPT = """
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const find = (id) => document.getElementById(id);
const points = [...document.querySelectorAll('#points-table tbody code')];

function choose() {
  const wanted = find('show').value;
  let count = 0;
  for (const point of points) {
    const { block, parts } = point.dataset;
    const seen = wanted === 'all' || (wanted === 'parts' ? parts !== undefined : block === wanted);
    point.closest('tr').hidden = !seen;
    count += seen;
  }
  find('shown').textContent = `${count} trace point${count === 1 ? '' : 's'}`;
}
find('show').addEventListener('input', choose);
choose();
for (const link of document.querySelectorAll('a[href^="#point-"]')) {
  link.addEventListener('click', () => {
    if (!find(link.hash.slice(1)).closest('tr').hidden) return;
    find('show').value = 'all';
    choose();
  });
}

function drawn(parent, kind, attributes, ...inside) {
  const element = document.createElementNS(parent.namespaceURI, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  parent.append(element);
  return element;
}
const heats = [...document.querySelectorAll('.heat')];
const sides = ['A', 'B', 'B - A'];
for (const heat of heats) {
  const head = heat.dataset.head, side = Number(heat.dataset.side), wide = data.keys.length;
  const values = data.maps.map((side) => side[head]), cells = heat.querySelector('g');
  const square = (at) => ({ x: at % wide, y: Math.floor(at / wide), width: 1, height: 1 });
  const place = (at) => {
    const { x, y } = square(at), [query, key] = data.first;
    return `position ${query + y} (id ${data.queries[y]}) looks at ${key + x} (id ${data.keys[x]})`;
  };
  values[side].forEach((value, at) => {
    if (values[0][at] === 0 && values[1][at] === 0) return;
    const { x, y } = square(at), broken = typeof value === 'string';
    const kind = broken ? 'broken' : value < 0 ? 'less' : 'more';
    const shade = broken ? 1 : Math.abs(value) / data.largest[side];
    const rect = drawn(cells, 'rect', { class: kind, ...square(at), 'fill-opacity': shade });
    drawn(rect, 'title', {}, `${place(at)}: ${sides[side]} ${value}`);
    if (broken) drawn(cells, 'path', { class: 'cross', d: `M${x},${y}l1,1m0,-1l-1,1` });
  });
  let at = 0;
  const tell = () => {
    for (const other of heats.filter((other) => other.dataset.head === head)) {
      other.querySelector('.cursor')?.remove();
      drawn(other.querySelector('g'), 'rect', { class: 'cursor', ...square(at) });
    }
    const told = sides.map((name, k) => `${name} ${values[k][at]}`).join(', ');
    find(`head-${head}`).textContent = `${place(at)}: ${told}`;
  };
  heat.addEventListener('focus', tell);
  heat.addEventListener('keydown', (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }, step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = at + step, sideways = Math.abs(step) === 1;
    if (next < 0 || next >= values[0].length) return;
    if (sideways && square(next).y !== square(at).y) return;
    at = next;
    tell();
  });
}
"""
