// The last requests, and which facts went into each answer. Their texts are not in the log.
import { seesAll } from './api.js';
import { busy, empty, field, h, heading, note, nothing, select, table, tableRow } from './dom.js';
import { count, ms, plural, timeOfDay } from './format.js';
import { RequestFeed } from './feed.js';
import { memoryDialog } from './memories.js';

const kEveryMs = 5000;
const kShown = 100;

const kKinds = {
  all: () => true,
  answers: (one) => one.answer !== null,
  errors: (one) => one.status >= 400,
};

function ids(name, kind, list) {
  return list.length > 0 && h('div', {},
    h('span', { class: `badge ${kind}` }, `${name} ${list.length}`),
    h('ul', { class: 'ids' }, list.map((id) => h('li', {}, h('button', {
      type: 'button', class: 'quiet', click: (event) => busy(event.target, () => memoryDialog(id)),
    }, id)))));
}

function answerCell({ answer }) {
  if (answer === null) return nothing;
  const { injected, prefilled } = answer;
  const numbers = `${count(answer.injected_tokens)} injected, ` +
    `${count(answer.cached_tokens)} held, ${count(answer.prefilled_tokens)} computed`;
  const facts = injected.length + prefilled.length;
  return h('div', {}, h('p', { class: 'small' }, `Tokens: ${numbers}`),
    facts > 0 && h('details', {}, h('summary', {}, plural(facts, 'fact')),
      ids('injected', 'kv', injected), ids('computed', 'text', prefilled)));
}

const statusBadge = (status) => status === 0 ? h('span', { class: 'badge bad' }, 'client left')
  : h('span', { class: `badge ${status < 400 ? 'good' : 'bad'}` }, String(status));

const kColumns = [
  ['Time', (one) => timeOfDay(one.at)],
  ['Route', (one) => h('code', {},
    one.route === null ? 'no such route' : `${one.method} ${one.route}`), 'text'],
  ['Tenant', (one) => one.tenant ?? nothing, 'text'],
  ['Status', (one) => statusBadge(one.status)],
  ['Took', (one) => ms(one.ms), 'number'],
  ['Memory', (one) => one.answer?.mode ?? nothing],
  ['First token', (one) => one.answer?.first_token_ms ? ms(one.answer.first_token_ms) : nothing,
    'number'],
  ['Facts', answerCell],
];

export function requests() {
  const kind = select([['all', 'all'], ['answers', 'answers'], ['errors', 'errors']],
    { name: 'kind', change: () => draw() });
  const live = h('input', { type: 'checkbox', checked: true, name: 'live' });
  const box = h('div', { class: 'panel' });
  const feed = new RequestFeed();

  const newestFirst = (list) => list.filter(kKinds[kind.value]).slice(-kShown).reverse();

  function draw() {
    const found = newestFirst(feed.requests);
    box.replaceChildren(found.length === 0 ? empty('No requests yet.')
      : table('Requests, newest first', kColumns, found));
  }

  // What is open, or about to be pressed, stays.
  async function update() {
    const fresh = await feed.update();
    const rows = box.querySelector('tbody');
    if (rows === null || fresh === null) return draw();
    rows.prepend(...newestFirst(fresh).map((one) => tableRow(kColumns, one)));
    while (rows.children.length > kShown) rows.lastChild.remove();
  }

  const say = (error) => note(error.message, 'bad');
  let timer = 0;
  return {
    element: h('section', {}, heading('Requests'),
      h('div', { class: 'panel columns' }, field('Show', kind),
        h('label', { class: 'check' }, live, ' New ones as they come')),
      h('p', { class: 'small' }, seesAll()
        ? 'The last 1,000 since the gateway started, of all tenants.'
        : 'The last ones of this tenant since the gateway started.',
      ' Ids and numbers only; no text is kept.'), box),
    show() {
      update().catch(say);
      timer = setInterval(() => {
        if (live.checked && !document.hidden) update().catch(() => {});
      }, kEveryMs);
    },
    hide: () => clearInterval(timer),
  };
}
