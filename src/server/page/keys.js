// Keys: who may ask, for which tenant, and what.
import { call, get, may, session } from './api.js';
import {
  dialog, empty, field, formDialog, h, heading, note, nothing, select, table,
} from './dom.js';
import { count, dateAndTime } from './format.js';

function showOnce(made) {
  dialog('The new key', () => {
    const text = h('input', { readonly: true, value: made.key, name: 'new-key' });
    return [
      field(`Key ${made.id} of ${made.tenant}`, text, 'Shown this once: keep it now.'),
      h('div', { class: 'buttons' }, h('button', {
        type: 'button', class: 'main',
        click: async () => {
          text.select();
          try {
            await navigator.clipboard.writeText(made.key);
            note('Copied.');
          } catch {
            note('This browser lets no page copy here; the key is selected.', 'bad');
          }
        },
      }, 'Copy')),
    ];
  });
}

export function keys() {
  const box = h('div', { class: 'panel' });

  function create() {
    const tenant = h('input', { name: 'tenant', required: true, value: session.tenant });
    const access = select([['write', 'write: also add, change and delete'],
      ['read', 'read: search, list and ask'], ['admin', 'admin: also make and end keys']],
    { name: 'access' });
    const name = h('input', { name: 'name' });
    const limit = h('input', { type: 'number', min: 0, max: 4294967295, value: 0, name: 'limit' });
    formDialog('Make a key', [
      field('Tenant', tenant, 'Whose facts it sees, and no other’s'),
      field('Access', access), field('Name', name, 'What it is for'),
      field('Requests a minute', limit, '0: as many as the gateway allows'),
    ], 'Make', async () => {
      const body = {
        tenant: tenant.value, access: access.value, name: name.value,
        per_minute: Number(limit.value),
      };
      showOnce(await call('POST', '/v1/keys', body));
      await load();
    });
  }

  function rotate(key) {
    formDialog(`Rotate key ${key.id}?`, [
      h('p', {}, 'A new secret for the same key. The old one ends at once.'),
      key.id === session.key_id && h('p', { class: 'problem' }, 'This page uses this key now.'),
    ], 'Rotate', async () => {
      showOnce(await call('POST', `/v1/keys/${encodeURIComponent(key.id)}/rotate`, {}));
      if (key.id !== session.key_id) await load();
    }, { danger: true });
  }

  function revoke(key) {
    formDialog(`Revoke key ${key.id}?`, [
      h('p', {}, 'Nobody gets in with it from now on.',
        key.name && ` It is named “${key.name}”.`),
      key.id === session.key_id && h('p', { class: 'problem' }, 'This page uses this key now.'),
    ], 'Revoke', async () => {
      await call('DELETE', `/v1/keys/${encodeURIComponent(key.id)}`);
      note('Revoked.');
      await load();
    }, { danger: true });
  }

  const actions = (key) => key.revoked_at ? nothing : h('div', { class: 'buttons' },
    [['Rotate', rotate], ['Revoke', revoke]].map(([name, act]) => h('button', {
      type: 'button', class: 'quiet', 'aria-label': `${name} key ${key.id}`, click: () => act(key),
    }, name)));

  async function load() {
    const answer = await get('/v1/keys');
    box.replaceChildren(answer.keys.length === 0 ? empty('There are no keys.') : table('Keys', [
      ['Id', (key) => h('code', {}, key.id)],
      ['Tenant', (key) => key.tenant, 'text'],
      ['Access', (key) => key.access],
      ['Name', (key) => key.name || nothing, 'text'],
      ['A minute', (key) => key.per_minute === 0 ? 'any' : count(key.per_minute), 'number'],
      ['Made', (key) => dateAndTime(key.created_at)],
      ['State', (key) => key.revoked_at
        ? h('span', { class: 'badge bad' }, `revoked ${dateAndTime(key.revoked_at)}`)
        : h('span', { class: 'badge good' },
          key.id === session.key_id ? 'this page’s' : 'valid')],
      ['Actions', actions],
    ], answer.keys));
  }

  function refuse() {
    box.replaceChildren(session.key_id === null
      ? h('p', {}, 'No key is needed here, so none can be made here either. ',
        h('code', {}, 'inferscale keys create --access admin'),
        ' makes the first one; from then on this page asks for it.')
      : h('p', {}, 'Keys are for those who have an admin key. This one may ',
        h('b', {}, session.access), '.'));
  }

  return {
    element: h('section', {},
      heading('Keys', may('admin') &&
        h('button', { type: 'button', class: 'main', click: create }, 'Make a key')), box),
    show() {
      if (!may('admin')) return refuse();
      return load().catch((error) => note(error.message, 'bad'));
    },
  };
}
