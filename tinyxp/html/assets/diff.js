const points = [...document.querySelectorAll('#points-table tbody code')];

function showPoints() {
  const choice = byId('show').value;
  let count = 0;
  for (const point of points) {
    const { block, differs } = point.dataset;
    const visible = choice === 'all' || (choice === 'differing' ? differs !== undefined : block === choice);
    point.closest('tr').hidden = !visible;
    count += visible;
  }
  byId('shown').textContent = `${count} trace point${count === 1 ? '' : 's'}`;
}
byId('show').addEventListener('input', showPoints);
showPoints();

// A link to a hidden row shows all rows first.
for (const link of document.querySelectorAll('a[href^="#point-"]')) {
  link.addEventListener('click', () => {
    if (!byId(link.hash.slice(1)).closest('tr').hidden) return;
    byId('show').value = 'all';
    showPoints();
  });
}

function append(parent, kind, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  parent.append(element);
  return element;
}

const maps = [...document.querySelectorAll('.heat')];
const sides = ['A', 'B', 'B - A'];
for (const map of maps) {
  const head = map.dataset.head, side = Number(map.dataset.side), width = data.keys.length;
  const values = data.maps.map((heads) => heads[head]), cells = map.querySelector('g');
  const square = (index) => ({ x: index % width, y: Math.floor(index / width), width: 1, height: 1 });
  const place = (index) => {
    const { x, y } = square(index), [query, key] = data.first;
    return `position ${query + y} (id ${data.queries[y]}) attends to ${key + x} (id ${data.keys[x]})`;
  };

  const drawing = document.createDocumentFragment();
  values[side].forEach((value, index) => {
    if (values[0][index] === 0 && values[1][index] === 0) return;
    const { x, y } = square(index), finite = typeof value === 'number';
    const kind = !finite ? 'broken' : value < 0 ? 'less' : 'more';
    const opacity = finite ? Math.abs(value) / data.largest[side] : 1;
    const cell = append(drawing, 'rect', { class: kind, ...square(index), 'fill-opacity': opacity });
    append(cell, 'title', {}, `${place(index)}: ${sides[side]} ${value}`);
    if (!finite) append(drawing, 'path', { class: 'cross', d: `M${x},${y}l1,1m0,-1l-1,1` });
  });
  cells.append(drawing);

  let current = 0;
  const showCell = () => {
    for (const other of maps.filter((other) => other.dataset.head === head)) {
      other.querySelector('.cursor')?.remove();
      append(other.querySelector('g'), 'rect', { class: 'cursor', ...square(current) });
    }
    const numbers = sides.map((name, k) => `${name} ${values[k][current]}`).join(', ');
    byId(`head-${head}`).textContent = `${place(current)}: ${numbers}`;
  };
  map.addEventListener('focus', showCell);
  map.addEventListener('keydown', (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -width, ArrowDown: width };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = current + step, isSideways = Math.abs(step) === 1;
    if (next < 0 || next >= values[0].length) return;
    if (isSideways && square(next).y !== square(current).y) return;
    current = next;
    showCell();
  });
}
