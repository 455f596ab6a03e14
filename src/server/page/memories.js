// Memories: look for them, add, change, delete, and see what became of them.
import { call, get, may } from './api.js';
import {
  busy, dialog, empty, field, formDialog, h, heading, note, nothing, select, table,
} from './dom.js';
import { count, dateAndTime, plural } from './format.js';
import { userField } from './user_field.js';

const kPage = 20;
const kOperators = [
  ['eq', 'is'], ['ne', 'is not'], ['contains', 'contains'], ['gt', 'is more than'],
  ['gte', 'is at least'], ['lt', 'is less than'], ['lte', 'is at most'], ['in', 'is one of (a, b)'],
];

// 3, true and null as JSON has them, all else as text.
function plainValue(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null ? text : value;
  } catch {
    return text;
  }
}

function metadataOf(text) {
  let value;
  try {
    value = JSON.parse(text.trim() || '{}');
  } catch {
    throw new Error('The metadata is not JSON.');
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw new Error('The metadata must be a JSON object.');
  }
  return value;
}

export const erasedTable = (erased) => h('dl', { class: 'pairs' },
  [['Texts', erased.text], ['Vectors', erased.vector], ['Histories', erased.history],
    ['KV records', erased.kv_records]].map(([name, n]) =>
    [h('dt', {}, name), h('dd', {}, count(n))]),
  h('dt', {}, 'KV left to erase'),
  h('dd', {}, erased.kv_pending ? 'some; it is tried again' : 'none'));

export const erasedDialog = (erased) => dialog('Erased', () => [
  erasedTable(erased),
  h('p', { class: 'small' }, 'Nothing refers to these any more. Their bytes leave the files with ' +
    'the next “inferscale compact”.'),
]);

export async function historyDialog(id) {
  const events = await get(`/v1/memories/${encodeURIComponent(id)}/history`);
  dialog('History', () => [
    h('p', { class: 'small' }, id),
    table('What became of this memory', [
      ['When', (one) => dateAndTime(one.created_at)],
      ['Event', (one) => one.event],
      ['Before', (one) => one.old_memory ?? nothing, 'text'],
      ['After', (one) => one.new_memory ?? nothing, 'text'],
    ], events),
  ]);
}

function addDialog(user, done) {
  const text = h('textarea', { rows: 3, required: true, name: 'text' });
  const who = h('input', { name: 'user', value: user });
  const agent = h('input', { name: 'agent' });
  const run = h('input', { name: 'run' });
  const speaker = h('input', { name: 'speaker' });
  const metadata = h('textarea', { rows: 2, name: 'metadata', placeholder: '{"topic": "home"}' });
  const expires = h('input', { type: 'date', name: 'expires' });
  const infer = h('input', { type: 'checkbox', name: 'infer' });
  formDialog('Add a memory', [
    field('Text', text, 'Kept as it is, searchable at once; its KV follows.'),
    h('label', { class: 'check' }, infer, ' Let the model draw facts from it instead'),
    h('div', { class: 'columns' }, field('User', who), field('Speaker', speaker),
      field('Agent', agent), field('Run', run)),
    field('Metadata', metadata, 'A JSON object'),
    field('Delete after', expires),
  ], 'Add', async () => {
    const body = {
      messages: [{ role: 'user', content: text.value, name: speaker.value || undefined }],
      user_id: who.value || undefined, agent_id: agent.value || undefined,
      run_id: run.value || undefined, metadata: metadataOf(metadata.value),
      expiration_date: expires.value || undefined, infer: infer.checked,
    };
    const { results } = await call('POST', '/v3/memories/add', body);
    const added = results.filter(({ event }) => event !== 'NONE').length;
    if (added > 0) note(added === 1 ? 'Added.' : `Added: ${plural(added, 'memory', 'memories')}.`);
    else note(infer.checked ? 'Nothing new in it.' : 'A memory says the same already.');
    done(who.value);
  });
}

function editDialog(memory, done) {
  const text = h('textarea', { rows: 4, required: true, name: 'text', value: memory.memory });
  const metadata = h('textarea',
    { rows: 3, name: 'metadata', value: JSON.stringify(memory.metadata) });
  const expires = h('input',
    { type: 'date', name: 'expires', value: memory.expiration_date ?? '' });
  formDialog('Edit a memory', [
    field('Text', text, 'What was encoded with the old text is erased and encoded again.'),
    field('Metadata', metadata, 'A JSON object'),
    field('Delete after', expires),
  ], 'Save', async () => {
    const wanted = metadataOf(metadata.value);
    for (const name of Object.keys(memory.metadata)) wanted[name] ??= null;  // taken away
    const body = { metadata: wanted, expiration_date: expires.value || null };
    if (text.value !== memory.memory) body.text = text.value;
    await call('PUT', `/v1/memories/${encodeURIComponent(memory.id)}`, body);
    note('Saved.');
    done();
  });
}

function deleteDialog(memory, done) {
  formDialog('Delete this memory?', [
    h('blockquote', {}, memory.memory),
    h('p', {}, 'Its text, vector and history go, and all KV that was computed with it.'),
  ], 'Delete', async () => {
    const { erased } = await call('DELETE', `/v1/memories/${encodeURIComponent(memory.id)}`);
    done();
    erasedDialog(erased);
  }, { danger: true });
}

const chip = (name, value) => value !== null && value !== undefined &&
  h('span', { class: 'chip' }, h('b', {}, name), ' ', String(value));

const metadataText = (value) => typeof value === 'string' ? value : JSON.stringify(value);

function scores(memory) {
  const details = memory.score_details;
  if (!details) return null;
  return h('p', { class: 'scores' },
    h('span', {}, 'cosine ', h('b', {}, details.semantic.toFixed(3))),
    h('span', {}, 'words ', h('b', {}, details.bm25.toFixed(2))),
    h('span', {}, 'fused ', h('b', {}, details.fused.toFixed(4))));
}

// One memory as an item of a list; `changed` is called after it was edited or deleted.
export function memoryItem(memory, changed) {
  const act = (name, go) => h('button', {
    type: 'button', class: 'quiet', click: (event) => busy(event.target, async () => go()),
  }, name);
  return h('article', { class: 'memory' },
    h('div', { class: 'heading' }, h('p', { class: 'said' }, memory.memory),
      h('div', { class: 'buttons' },
        may('write') && act('Edit', () => editDialog(memory, changed)),
        act('History', () => historyDialog(memory.id)),
        may('write') && act('Delete', () => deleteDialog(memory, changed)))),
    scores(memory),
    h('p', { class: 'chips' },
      chip('user', memory.user_id), chip('agent', memory.agent_id), chip('run', memory.run_id),
      chip('speaker', memory.actor_id), memory.said_at && chip('said', dateAndTime(memory.said_at)),
      memory.version > 1 && chip('version', memory.version), chip('until', memory.expiration_date),
      Object.entries(memory.metadata).map(([name, value]) =>
        h('span', { class: 'chip meta' }, h('b', {}, name), ' ', metadataText(value)))));
}

export async function memoryDialog(id) {
  const memory = await get(`/v1/memories/${encodeURIComponent(id)}`);
  const box = dialog('Memory', (close) => memoryItem(memory, close));
  return box;
}

function filterFields() {
  const agent = h('input', { name: 'agent' });
  const run = h('input', { name: 'run' });
  const name = h('input', { name: 'field', placeholder: 'topic' });
  const operator = select(kOperators, { name: 'operator' });
  const value = h('input', { name: 'value', placeholder: 'home' });
  const element = h('details', { class: 'filter' }, h('summary', {}, 'Filter'),
    h('div', { class: 'columns' }, field('Agent', agent), field('Run', run),
      field('Metadata field', name), field('Condition', operator), field('Value', value)));
  const filters = () => {
    const all = [];
    if (agent.value) all.push({ agent_id: agent.value });
    if (run.value) all.push({ run_id: run.value });
    if (name.value) {
      const wanted = operator.value === 'in'
        ? value.value.split(',').map((one) => plainValue(one.trim())) : plainValue(value.value);
      all.push({ metadata: { [name.value]: { [operator.value]: wanted } } });
    }
    return all;
  };
  return { element, filters };
}

export function memories() {
  const user = userField('Leave it empty for all users');
  const query = h('input', { type: 'search', name: 'query', placeholder: 'Where does she live?' });
  const filter = filterFields();
  const list = h('ul', { class: 'memories', 'aria-label': 'Memories' });
  const summary = h('p', { class: 'small', role: 'status' });
  const earlier = h('button', { type: 'button', click: () => load(page - 1) }, 'Newer');
  const later = h('button', { type: 'button', click: () => load(page + 1) }, 'Older');
  const pager = h('nav', { class: 'buttons', 'aria-label': 'Pages' }, earlier, later);
  let page = 1;

  const add = h('button', {
    type: 'button', class: 'main',
    click: () => addDialog(user.input.value, (who) => {
      if (user.input.value) user.input.value = who;
      query.value = '';
      load(1);
    }),
  }, 'Add a memory');

  function draw(results) {
    list.replaceChildren(...results.map((memory) =>
      h('li', {}, memoryItem(memory, () => load(page)))));
    if (results.length === 0) list.append(h('li', {}, empty('No memories here.')));
  }

  async function load(wanted) {
    const all = filter.filters();
    if (user.input.value) all.push({ user_id: user.input.value });
    const filters = all.length > 0 ? { AND: all } : {};
    try {
      if (query.value.trim()) {
        const body = { query: query.value, filters, top_k: kPage, explain: true };
        const { results } = await call('POST', '/v3/memories/search', body);
        draw(results);
        summary.textContent = `The ${plural(results.length, 'nearest memory', 'nearest memories')}`;
        pager.hidden = true;
        return;
      }
      const path = `/v3/memories?page=${wanted}&page_size=${kPage}`;
      const found = await call('POST', path, { filters });
      if (found.results.length === 0 && wanted > 1) return load(wanted - 1);
      page = wanted;
      draw(found.results);
      const first = (page - 1) * kPage;
      summary.textContent = found.count === 0 ? 'None'
        : `${first + 1} to ${first + found.results.length} of ${count(found.count)}, newest first`;
      pager.hidden = found.count <= kPage;
      earlier.disabled = !found.previous;
      later.disabled = !found.next;
    } catch (error) {
      note(error.message, 'bad');
    }
  }

  const form = h('form', {
    class: 'panel find', role: 'search', 'aria-label': 'Memories',
    submit: (event) => {
      event.preventDefault();
      load(1);
    },
  },
  h('div', { class: 'columns' }, user.element, field('Search', query)), filter.element,
  h('div', { class: 'buttons' }, h('button', { type: 'submit', class: 'main' }, 'Show'),
    h('button', {
      type: 'button',
      click: () => {
        form.reset();
        load(1);
      },
    }, 'Clear')));

  return {
    element: h('section', {}, heading('Memories', may('write') && add), form, summary, list, pager),
    show(params) {
      user.refresh();
      if (params.has('user')) {
        form.reset();
        user.input.value = params.get('user');
      }
      load(1);
    },
  };
}
