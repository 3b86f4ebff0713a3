"""The style of the page of a forward pass, and what moves on it: choosing what is shown, nothing computed."""

from __future__ import annotations

STYLE = """
th .token { display: inline-block; max-inline-size: 10rem; overflow: hidden; text-overflow: ellipsis;
  vertical-align: bottom; }
input[type=checkbox] { width: 1.15rem; height: 1.15rem; accent-color: var(--heat); }
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
  border-radius: .4rem; padding: .15rem .5rem; max-width: 100%; overflow-wrap: anywhere; cursor: pointer; }
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
.dot { fill: var(--heat); stroke: var(--card); fill-opacity: .85; }
"""

SCRIPT = """
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const find = (id) => document.getElementById(id);
const whole = (id) => Number(find(id).value);
const tokens = data.tokens, first = data.first, count = tokens.length;
const named = (i) => `${tokens[i]} (position ${first + i})`;

for (const chip of document.querySelectorAll('.chip')) {
  const tell = () => { find('chip-told').textContent = chip.dataset.told; };
  for (const event of ['focus', 'mouseenter', 'click']) chip.addEventListener(event, tell);
}

// Numbers of 0 to 1000: those below 60 are one character, others have one before it that counts the sixties.
function unpacked(text) {
  const [ones, sixties] = data.code, values = [];
  let high = 0;
  for (const c of text) {
    const found = sixties.indexOf(c);
    if (found >= 0) high = 60 * (found + 1);
    else { values.push(high + ones.indexOf(c)); high = 0; }
  }
  return values;
}

function paint(cell, thousandths, written) {
  cell.className = thousandths === null ? 'masked' : 'shaded' + (thousandths >= data.strong ? ' strong' : '');
  cell.style.setProperty('--w', (thousandths ?? 0) / 1000);
  cell.title = thousandths === null ? 'hidden by the mask' : (thousandths / 1000).toFixed(3);
  cell.textContent = written && thousandths >= 5 ? (thousandths / 1000).toFixed(2).replace(/^0/, '') : '';
}

const rows = [...find('attention-table').tBodies[0].rows];
const cells = rows.map((row) => [...row.querySelectorAll('td')]);
function attention() {
  const layer = whole('layer'), query = whole('query');
  const head = Number(document.querySelector('input[name=head]:checked').value);
  const mask = find('mask').checked, values = unpacked((mask ? data.masked : data.unmasked)[layer][head]);
  const at = (i, j) => mask ? (j > i ? null : values[i * (i + 1) / 2 + j]) : values[i * count + j];
  for (let i = 0; i < count; i++) {
    rows[i].classList.toggle('chosen', i === query);
    for (let j = 0; j < count; j++) {
      paint(cells[i][j], at(i, j), data.written);
      cells[i][j].classList.toggle('future', !mask && j > i);
      cells[i][j].classList.toggle('edge', j === i + 1);
    }
  }
  find('layer-value').textContent = layer;
  find('query-value').textContent = first + query;
  const order = [...tokens.keys()].filter((j) => at(query, j) !== null);
  order.sort((a, b) => at(query, b) - at(query, a));
  const seen = order.slice(0, 3).map((j) => `${named(j)} with ${(at(query, j) / 1000).toFixed(3)}`);
  let told = `Layer ${layer}, head ${head}, reading key/value head ${Math.floor(head / data.group)}: ` +
    `${named(query)} looks at ${seen.join(', ')}.`;
  if (!mask) {
    told += ` Without the mask ${(100 * data.future[layer][head]).toFixed(1)} % of this head's attention ` +
      'falls on tokens that come later.';
  }
  find('attention-told').textContent = told;
}
for (const id of ['layer', 'query', 'mask', 'heads']) find(id).addEventListener('input', attention);
attention();

if (data.hands) {
  const clocks = [...document.querySelectorAll('.clock')];
  const turn = () => {
    const position = whole('position');
    clocks.forEach((clock, k) => {
      const [cos, sin] = data.hands[k][position], hand = clock.querySelector('.hand');
      hand.setAttribute('x2', 50 + 38 * sin);
      hand.setAttribute('y2', 50 - 38 * cos);
      clock.querySelector('.turns').textContent = `${(position / data.periods[k]).toFixed(4)} turns so far`;
    });
    const i = position - first, token = i >= 0 && i < count ? `, ${tokens[i]}` : '';
    find('position-value').textContent = position + token;
  };
  find('position').addEventListener('input', turn);
  turn();
}

function trail() {
  const chosen = find('trail').value;
  for (const line of document.querySelectorAll('.line')) {
    line.classList.toggle('chosen', line.dataset.line === chosen);
    if (line.dataset.line === chosen) line.parentNode.append(line);
  }
}
find('trail').addEventListener('input', trail);
trail();

const valves = [...find('valve-table').tBodies[0].rows];
function valve() {
  const layer = whole('mlp-layer'), unit = whole('unit'), values = data.valve[layer][unit];
  find('mlp-layer-value').textContent = layer;
  [...find('unit').options].forEach((option, k) => { option.text = data.units[layer][k]; });
  const largest = values.map((row) => Math.max(...row.map(Math.abs)) || 1);
  valves.forEach((row, i) => {
    [...row.querySelectorAll('td')].forEach((cell, k) => {
      const share = values[k][i] / largest[k];
      cell.textContent = values[k][i];
      cell.className = 'shaded' + (Math.abs(share) * 1000 >= data.strong ? ' strong' : '') +
        (share < 0 ? ' negative' : '');
      cell.style.setProperty('--w', Math.abs(share));
    });
  });
  const reach = data.reach[layer][unit], [dots, told] = [find('dots').children, data.plotted];
  find('plot').setAttribute('viewBox', `${-reach} ${-reach} ${2 * reach} ${1.25 * reach}`);
  find('plot-told').textContent = `${told[1]} over ${told[0]} from ${-reach} to ${reach}; a dot is a token`;
  for (let i = 0; i < count; i++) {
    dots[i].setAttribute('cx', values[0][i]);
    dots[i].setAttribute('cy', -values[1][i]);
    dots[i].setAttribute('r', reach / 40);
  }
}
for (const id of ['mlp-layer', 'unit']) find(id).addEventListener('input', valve);
valve();
"""
