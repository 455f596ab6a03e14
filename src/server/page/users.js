// Whom facts belong to: users, agents and runs.
import { call, get, may } from './api.js';
import { empty, field, formDialog, h, heading, note, select, table } from './dom.js';
import { count, dateAndTime, plural } from './format.js';
import { erasedDialog } from './memories.js';

const kShown = 500;

export function users() {
  const type = select([['', 'all'], ['user', 'users'], ['agent', 'agents'], ['run', 'runs']],
    { name: 'type', change: () => draw() });
  const name = h('input', { type: 'search', name: 'name', input: () => draw() });
  const box = h('div', { class: 'panel' });
  let entities = [];

  function remove(entity) {
    formDialog(`Delete all of ${entity.type} ${entity.name}?`, [
      h('p', {}, `${plural(entity.total_memories, 'memory', 'memories')} with vectors, history ` +
        'and KV. This can’t be undone.'),
    ], 'Delete all', async () => {
      const path = `/v2/entities/${entity.type}/${encodeURIComponent(entity.name)}`;
      const { erased } = await call('DELETE', path);
      await load();
      erasedDialog(erased);
    }, { danger: true });
  }

  const actions = (entity) => h('div', { class: 'buttons' },
    entity.type === 'user' &&
      h('a', {
        class: 'button quiet', href: `#memories?${new URLSearchParams({ user: entity.name })}`,
      }, 'Memories'),
    may('write') && h('button', {
      type: 'button', class: 'quiet', 'aria-label': `Delete all of ${entity.type} ${entity.name}`,
      click: () => remove(entity),
    }, 'Delete'));

  function draw() {
    const wanted = name.value.toLowerCase();
    const found = entities.filter((entity) => (!type.value || entity.type === type.value) &&
      entity.name.toLowerCase().includes(wanted));
    if (found.length === 0) {
      box.replaceChildren(empty('Nobody here.'));
      return;
    }
    box.replaceChildren(table('Users, agents and runs', [
      ['Type', (one) => one.type],
      ['Name', (one) => h('b', {}, one.name), 'text'],
      ['Memories', (one) => count(one.total_memories), 'number'],
      ['First', (one) => dateAndTime(one.created_at)],
      ['Last change', (one) => dateAndTime(one.updated_at)],
      ['Actions', actions],
    ], found.slice(0, kShown)));
    if (found.length > kShown) {
      box.append(h('p', { class: 'small' },
        `${count(found.length - kShown)} more; say a part of the name.`));
    }
  }

  async function load() {
    entities = await get('/entities');
    draw();
  }

  return {
    element: h('section', {}, heading('Users'),
      h('div', { class: 'panel columns' }, field('Type', type), field('Name', name)), box),
    show: () => load().catch((error) => note(error.message, 'bad')),
  };
}
