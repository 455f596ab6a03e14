// A field for a user's name, which offers those who have facts.
import { get } from './api.js';
import { field, h, newId } from './dom.js';

const kOffered = 500;

export function userField(hint) {
  const offered = h('datalist', { id: newId('users') });
  const input = h('input', { name: 'user', list: offered.id, autocomplete: 'off' });
  const element = field('User', input, hint);
  element.append(offered);
  const refresh = async () => {
    try {
      const entities = await get('/entities');
      const users = entities.filter(({ type }) => type === 'user').slice(0, kOffered);
      offered.replaceChildren(...users.map(({ name }) => h('option', { value: name })));
    } catch {
      // Names can be typed all the same.
    }
  };
  return { element, input, refresh };
}
