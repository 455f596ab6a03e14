// What the gateway keeps, how it is found, and how long first tokens take.
import { get } from './api.js';
import { h, heading } from './dom.js';
import { bytes, count, median, ms, percent, plural, timeOfDay } from './format.js';
import { bar, Plot } from './plot.js';
import { RequestFeed } from './feed.js';

const kEveryMs = 5000;
const kSamples = 400;

const kModes = {
  kv: { label: 'Injected KV', shape: 'circle' },
  text: { label: 'Text, computed', shape: 'square' },
};

const tile = (name, value, ...more) =>
  h('div', { class: 'tile' }, h('h2', {}, name), h('p', { class: 'number' }, value),
    more.map((line) => h('p', {}, line)));

// What `inferscale verify` said: is injected KV as near to text as another order of the facts?
function drawQuality(quality) {
  if (!quality) return h('span', { class: 'badge' }, 'quality not measured');
  const state = quality.passed ? 'passed' : 'failed';
  return h('span', { class: `badge ${quality.passed ? 'good' : 'bad'}` }, `quality ${state}`);
}

function drawModel({ model }) {
  const test = model.self_test;
  const state = test.passed ? 'passed' : 'not passed';
  return h('div', { class: 'tile wide' }, h('h2', {}, 'Model'),
    h('p', { class: 'number' }, model.id),
    h('p', {}, [model.description, model.engine].filter(Boolean).join(' · ')),
    h('p', {},
      h('span', { class: `badge ${model.injection ? 'kv' : 'text'}` },
        model.injection ? 'facts are injected' : 'facts are computed from text'), ' ',
      h('span', { class: `badge ${test.passed ? 'good' : 'bad'}` }, `self-test ${state}`), ' ',
      drawQuality(model.quality)),
    test.summary && h('p', { class: 'small' }, test.summary));
}

const kTierNames = { device: 'On the device', memory: 'In host memory', disk: 'On disk' };

function drawTiers(tiers) {
  const rows = tiers.map(({ tier, bytes: used, budget }) => {
    const said = budget === null ? `${bytes(used)}, no limit`
      : `${bytes(used)} of ${bytes(budget)}`;
    const name = kTierNames[tier] ?? tier;
    return h('div', { class: 'measure' },
      h('div', { class: 'split' }, h('span', {}, name), h('span', {}, said)),
      budget !== null && bar(`${name}: ${said}`,
        [{ kind: tier === 'disk' ? 'disk' : 'kv', value: used, title: said }], budget));
  });
  if (!tiers.some(({ tier }) => tier === 'device')) {
    rows.unshift(h('p', { class: 'small' }, 'This process keeps no KV on a device of its own.'));
  }
  return rows;
}

function drawLookups({ memory_hits: hits, disk_reads: reads, misses }) {
  const all = hits + reads + misses;
  const parts = [['memory', 'kv', hits], ['disk', 'disk', reads], ['nowhere', 'text', misses]];
  const said = parts.map(([where, , n]) => `${where} ${all ? percent(n / all) : '–'}`).join(', ');
  return [
    h('div', { class: 'split' }, h('span', {}, 'Found in'), h('span', {}, said)),
    bar(`KV records were found in: ${said}`,
      parts.map(([where, kind, n]) => ({ kind, value: n, title: `${where}: ${count(n)}` })), all),
  ];
}

function drawEncoding({ episodes, episodes_pending: pending }) {
  const done = Math.max(0, episodes - pending);
  const said = `${count(done)} of ${plural(episodes, 'episode')}`;
  return h('div', { class: 'measure' },
    h('div', { class: 'split' }, h('span', {}, 'Encoded'), h('span', {}, said)),
    bar(`Encoded: ${said}`, [{ kind: 'kv', value: done, title: said }], episodes));
}

const shortMs = (value) => value >= 1000 ? `${value / 1000} s` : value > 0 ? `${value} ms` : '0';

const timePlot = (title, x) => new Plot({
  title, x, y: { format: shortMs }, series: kModes,
  nothing: 'No answers with memory yet. Ask something in Chat.',
});

export function overview() {
  const tiles = h('div', { class: 'tiles' });
  const kept = h('div', { class: 'panel', id: 'tiers' });
  const shares = h('div', { class: 'measure' });
  const byTime = timePlot('Time to the first token, answer by answer',
    { label: 'time', isTime: true });
  const byTokens = timePlot('Time to the first token, by the tokens that were read',
    { label: 'tokens injected or computed', format: count });
  const hitRate = new Plot({
    title: 'Found in host memory, while this page is open',
    x: { label: 'time', isTime: true },
    y: { most: 100, format: (value) => `${value} %` },
    series: { kv: { label: 'Hit rate', shape: 'circle', line: true } },
    nothing: 'Nothing was looked up since this page was opened.',
    small: true,
  });
  const found = h('div', { class: 'panel', id: 'lookups' }, h('h2', {}, 'Look-ups of KV records'),
    shares, hitRate.element);
  const problem = h('p', { class: 'problem', role: 'alert' });
  const element = h('section', { class: 'overview' }, heading('Overview'), problem, tiles,
    h('div', { class: 'panels' },
      h('div', { class: 'panel' }, byTime.element), h('div', { class: 'panel' }, byTokens.element),
      kept, found));

  const feed = new RequestFeed();
  const samples = [];
  let before = null;

  function drawTimes() {
    const answers = feed.requests.filter(({ answer }) =>
      answer && answer.first_token_ms !== null && answer.mode in kModes);
    const points = (x) => Object.fromEntries(Object.keys(kModes).map((mode) => [mode,
      answers.filter(({ answer }) => answer.mode === mode).map((one) => ({
        x: x(one), y: one.answer.first_token_ms,
        title: `${timeOfDay(one.at)}: ${ms(one.answer.first_token_ms)}, ` +
          `${count(one.answer.injected_tokens)} tokens injected, ` +
          `${count(one.answer.prefilled_tokens)} computed`,
      }))]));
    const times = points((one) => Date.parse(one.at));
    const summaries = Object.fromEntries(Object.entries(times).map(([mode, list]) => [mode,
      list.length === 0 ? 'none yet'
        : `median ${ms(median(list.map(({ y }) => y)))} of ${plural(list.length, 'answer')}`]));
    byTime.draw(times, summaries);
    byTokens.draw(points(({ answer }) => answer.injected_tokens + answer.prefilled_tokens),
      summaries);
  }

  function sample({ memory_hits: hits, disk_reads: reads, misses }) {
    const now = { hits, all: hits + reads + misses };
    if (before !== null && now.all > before.all) {
      const y = (100 * (now.hits - before.hits)) / (now.all - before.all);
      const x = Date.now();
      samples.push({ x, y, title: `${timeOfDay(x)}: ${Math.round(y)} %` });
      samples.splice(0, samples.length - kSamples);
    }
    before = now;
    const last = samples.at(-1);
    hitRate.draw({ kv: samples }, { kv: last ? `${Math.round(last.y)} % in the last look-ups`
      : 'none yet' });
  }

  function draw(stats) {
    const { machine, tenant } = stats;
    tiles.replaceChildren(
      tile('Facts', count(tenant.facts), `of ${tenant.name}`,
        machine && machine.facts !== tenant.facts && `${count(machine.facts)} of all tenants`),
      tile('Users', count(tenant.users), 'who have facts'),
      machine && tile('Text and vectors', bytes(machine.memory_file_bytes), 'memory.db') || '',
      machine?.lookups && tile('KV records', count(machine.lookups.records),
        `${count(machine.stale_kv)} stale, ${count(machine.lookups.corrupt)} damaged`) || '',
      drawModel(stats));
    kept.hidden = found.hidden = !machine?.tiers;
    if (!machine?.tiers) return;
    kept.replaceChildren(h('h2', {}, 'Where KV lives'), ...drawTiers(machine.tiers),
      drawEncoding(machine), h('p', { class: 'small' },
        `${plural(machine.lookups.evictions, 'record')} left host memory for others since the ` +
        'gateway started. They stay on the disk.'));
    shares.replaceChildren(...drawLookups(machine.lookups),
      h('p', { class: 'small' }, 'Since the gateway started. What is found nowhere is computed ' +
        'from text: the same answer, only later.'));
    sample(machine.lookups);
  }

  async function update() {
    try {
      const [stats] = await Promise.all([get('/v1/stats'), feed.update()]);
      draw(stats);
      drawTimes();
      problem.textContent = '';
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  let timer = 0;
  return {
    element,
    show() {
      update();
      timer = setInterval(() => document.hidden || update(), kEveryMs);
    },
    hide: () => clearInterval(timer),
  };
}
