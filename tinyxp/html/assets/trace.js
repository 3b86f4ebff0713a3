// Nothing is computed here: the script only chooses which numbers are shown.
const numberOf = (id) => Number(byId(id).value);
const tokens = data.tokens, first = data.first, count = tokens.length;
const nameToken = (i) => `${tokens[i]} (position ${first + i})`;

function listen(ids, update) {
  for (const id of ids) byId(id).addEventListener('input', update);
  update();
}

for (const chip of document.querySelectorAll('.chip')) {
  const describe = () => { byId('chip-description').textContent = chip.dataset.description; };
  for (const event of ['focus', 'mouseenter', 'click']) chip.addEventListener(event, describe);
}

// Integers from 0 to 1000: below 60 one character; otherwise a character before it counts the sixties.
function unpack(text) {
  const [ones, sixties] = data.digits, values = [];
  let high = 0;
  for (const c of text) {
    const digit = sixties.indexOf(c);
    if (digit >= 0) high = 60 * (digit + 1);
    else { values.push(high + ones.indexOf(c)); high = 0; }
  }
  return values;
}

function paint(cell, thousandths) {
  const isMasked = thousandths === null;
  cell.className = isMasked ? 'masked' : 'shaded' + (thousandths >= data.strong ? ' strong' : '');
  cell.style.setProperty('--w', (thousandths ?? 0) / 1000);
  cell.title = isMasked ? 'hidden by the mask' : (thousandths / 1000).toFixed(3);
  cell.textContent =
    data.show_numbers && thousandths >= 5 ? (thousandths / 1000).toFixed(2).replace(/^0/, '') : '';
}

const rows = [...byId('attention-table').tBodies[0].rows];
const cells = rows.map((row) => [...row.querySelectorAll('td')]);
listen(['layer', 'query', 'mask', 'heads'], () => {
  const layer = numberOf('layer'), query = numberOf('query'), mask = byId('mask').checked;
  const head = Number(document.querySelector('input[name=head]:checked').value);
  const values = unpack((mask ? data.masked : data.unmasked)[layer][head]);
  const weight = (i, j) => mask ? (j > i ? null : values[i * (i + 1) / 2 + j]) : values[i * count + j];
  for (let i = 0; i < count; i++) {
    rows[i].classList.toggle('chosen', i === query);
    for (let j = 0; j < count; j++) {
      paint(cells[i][j], weight(i, j));
      cells[i][j].classList.toggle('future', !mask && j > i);
      cells[i][j].classList.toggle('edge', j === i + 1);
    }
  }
  byId('layer-value').textContent = layer;
  byId('query-value').textContent = first + query;
  const order = [...tokens.keys()].filter((j) => weight(query, j) !== null);
  order.sort((a, b) => weight(query, b) - weight(query, a));
  const largest = order.slice(0, 3).map((j) => `${nameToken(j)} ${(weight(query, j) / 1000).toFixed(3)}`);
  const shared = Math.floor(head / data.group);
  let description = `Layer ${layer}, head ${head}, key/value head ${shared}: ` +
    `${nameToken(query)} attends to ${largest.join(', ')}.`;
  if (!mask) {
    description += ` Without the mask, ${(100 * data.future[layer][head]).toFixed(1)} % of this head's ` +
      'attention goes to later tokens.';
  }
  byId('attention-description').textContent = description;
});

if (data.hands) {
  const clocks = [...document.querySelectorAll('.clock')];
  listen(['position'], () => {
    const position = numberOf('position');
    clocks.forEach((clock, k) => {
      const [cos, sin] = data.hands[k][position], hand = clock.querySelector('.hand');
      hand.setAttribute('x2', 50 + 38 * sin);
      hand.setAttribute('y2', 50 - 38 * cos);
      clock.querySelector('.turns').textContent = `${(position / data.periods[k]).toFixed(4)} turns so far`;
    });
    const i = position - first, token = i >= 0 && i < count ? `, ${tokens[i]}` : '';
    byId('position-value').textContent = position + token;
  });
}

listen(['stream-token'], () => {
  const chosen = byId('stream-token').value;
  for (const curve of document.querySelectorAll('.curve.token')) {
    curve.classList.toggle('chosen', curve.dataset.curve === chosen);
    if (curve.dataset.curve === chosen) curve.parentNode.append(curve);
  }
});

const unitRows = [...byId('unit-table').tBodies[0].rows];
listen(['mlp-layer', 'unit'], () => {
  const layer = numberOf('mlp-layer'), unit = numberOf('unit'), values = data.unit_values[layer][unit];
  byId('mlp-layer-value').textContent = layer;
  [...byId('unit').options].forEach((option, k) => { option.text = data.units[layer][k]; });
  const largest = values.map((row) => Math.max(...row.map(Math.abs)) || 1);
  unitRows.forEach((row, i) => {
    [...row.querySelectorAll('td')].forEach((cell, k) => {
      const share = values[k][i] / largest[k];
      cell.textContent = values[k][i];
      cell.className = 'shaded' + (Math.abs(share) * 1000 >= data.strong ? ' strong' : '') +
        (share < 0 ? ' negative' : '');
      cell.style.setProperty('--w', Math.abs(share));
    });
  });
  const reach = data.reach[layer][unit], dots = byId('dots').children, [x, y] = data.plotted;
  byId('plot').setAttribute('viewBox', `${-reach} ${-reach} ${2 * reach} ${1.25 * reach}`);
  byId('plot-description').textContent = `${y} against ${x} from ${-reach} to ${reach}; each dot is a token`;
  for (let i = 0; i < count; i++) {
    dots[i].setAttribute('cx', values[0][i]);
    dots[i].setAttribute('cy', -values[1][i]);
    dots[i].setAttribute('r', reach / 40);
  }
});
