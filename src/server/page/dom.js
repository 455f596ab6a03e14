// Building the page. All text goes in as text nodes: what a user wrote can't become markup, and the
// page's policy (require-trusted-types-for) refuses any other way.

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat(Infinity).filter((one) => one != null && one !== false));
  return element;
}

// h('button', {class: 'quiet', click: go}, 'Go'): attributes, listeners by their event's name, and
// children that are nodes or texts.
export const h = (tag, props = {}, ...children) =>
  fill(document.createElement(tag), props, children);

export const svg = (tag, props = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);

let lastId = 0;
export const newId = (prefix) => `${prefix}-${++lastId}`;

// A control under its label, with a line of explanation if there is one.
export function field(label, control, hint) {
  const id = control.id || newId('field');
  control.id = id;
  const parts = [h('label', { for: id }, label), control];
  if (hint) {
    const hintId = `${id}-hint`;
    control.setAttribute('aria-describedby', hintId);
    parts.push(h('small', { id: hintId }, hint));
  }
  return h('div', { class: 'field' }, parts);
}

export const select = (options, props = {}) =>
  h('select', props, options.map(([value, text]) => h('option', { value }, text)));

// What a cell shows if there is nothing; a card leaves it out.
export const nothing = '–';

export const tableRow = (columns, row) => h('tr', {}, columns.map(([name, cell, kind]) => {
  const value = cell(row);
  const none = value === nothing && 'none';
  return h('td', { 'data-label': name, class: [kind, none].filter(Boolean).join(' ') }, value);
}));

// Columns: [heading, (row) => node or text, class]. On a narrow screen each row is a card, where
// the headings stand beside the values.
export function table(caption, columns, rows) {
  return h(
    'table',
    {},
    h('caption', { class: 'hidden' }, caption),
    h('thead', {}, h('tr', {}, columns.map(([name, , kind]) =>
      h('th', { scope: 'col', class: kind }, name)))),
    h('tbody', {}, rows.map((row) => tableRow(columns, row))),
  );
}

export const heading = (title, ...more) =>
  h('div', { class: 'heading' }, h('h1', { tabindex: -1 }, title), ...more);

// Says something for some seconds, and to screen readers.
export function note(text, kind = 'good') {
  const line = h('p', { class: `note ${kind}` }, text);
  document.getElementById('notes').append(line);
  setTimeout(() => line.remove(), kind === 'bad' ? 10000 : 4000);
}

// Runs what a button starts; the button waits, and a failure is said.
export async function busy(button, work) {
  button.disabled = true;
  try {
    return await work();
  } catch (error) {
    if (error.name !== 'AbortError') note(error.message, 'bad');
    return undefined;
  } finally {
    button.disabled = false;
  }
}

// A dialog that is gone once it is closed. `make(close)` gives its content.
export function dialog(title, make, { closable = true } = {}) {
  const titleId = newId('dialog');
  const box = h('dialog', { 'aria-labelledby': titleId });
  let wanted = closable;  // whether it may close
  const close = () => {
    wanted = true;
    box.close();
  };
  box.append(
    h('div', { class: 'heading' }, h('h2', { id: titleId }, title),
      closable && h('button', { type: 'button', class: 'quiet', click: close }, 'Close')),
    h('div', {}, make(close)),
  );
  box.addEventListener('close', () => {
    if (wanted) box.remove();
    else box.showModal();  // Escape can't always be prevented
  });
  document.body.append(box);
  box.showModal();
  return box;
}

// A form in a dialog; `submit(form)` may throw what is then said in it.
export function formDialog(title, fields, action, submit,
  { danger = false, closable = true } = {}) {
  return dialog(title, (close) => {
    const problem = h('p', { class: 'problem', role: 'alert' });
    const button = h('button', { type: 'submit', class: danger ? 'danger' : 'main' }, action);
    const send = async (event) => {
      event.preventDefault();
      problem.textContent = '';
      button.disabled = true;
      try {
        await submit(event.target);
        close();
      } catch (error) {
        problem.textContent = error.message;
      } finally {
        button.disabled = false;
      }
    };
    return h('form', { class: 'stack', submit: send }, fields, problem,
      h('div', { class: 'buttons' }, button,
        closable && h('button', { type: 'button', click: close }, 'Cancel')));
  }, { closable });
}

export const empty = (...text) => h('p', { class: 'empty' }, ...text);
