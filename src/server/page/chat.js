// Chat: answers as they come, beside each the facts that it was given, and what was measured.
import { events, may } from './api.js';
import { field, h, heading, note, select } from './dom.js';
import { count, ms, plural, tierName } from './format.js';
import { bar } from './plot.js';
import { userField } from './user_field.js';

const kModes = [['kv', 'injected KV'], ['text', 'text, computed'], ['none', 'no memory']];
const kModeNames = Object.fromEntries(kModes);

// The steps to the first token, in order, with their colours.
const kSteps = [
  ['embed_ms', 'embed', 'step1'], ['search_ms', 'search', 'step2'],
  ['compose_ms', 'compose', 'step3'], ['load_ms', 'load', 'step4'],
  ['inject_ms', 'inject', 'kv'], ['prefill_ms', 'compute', 'text'],
];

// Asks, calls onText with each piece; the whole answer as {text, memory, held, finish}.
async function ask(body, signal, onText) {
  const out = { text: '', memory: null, held: 0, finish: null };
  const stream = events('/v1/chat/completions',
    { ...body, stream: true, stream_options: { include_usage: true } }, signal);
  for await (const data of stream) {
    if (data === '[DONE]') break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    const choice = chunk.choices[0];
    if (choice?.delta.content) {
      out.text += choice.delta.content;
      onText(choice.delta.content);
    }
    if (choice?.finish_reason) out.finish = choice.finish_reason;
    if (chunk.inferscale) out.memory = chunk.inferscale;
    if (chunk.usage) {
      out.held = chunk.usage.prompt_tokens_details.cached_tokens - out.memory.injected_tokens;
    }
  }
  if (out.memory === null) throw new Error('The answer broke off.');
  return out;
}

function factItem(fact) {
  return h('li', {},
    h('p', {}, fact.text),
    h('p', { class: 'small' },
      h('span', { class: `badge ${fact.injected ? 'kv' : 'text'}` },
        fact.injected ? `injected from ${tierName(fact.tier)}` : 'computed'), ' ',
      fact.score > 0 ? `score ${fact.score.toFixed(4)}` : 'came with its episode', ' · ',
      plural(fact.tokens, 'token')));
}

function factsPanel({ memory }, isLater) {
  const { facts } = memory;
  if (memory.mode === 'none') return h('p', { class: 'small' }, 'No memory was asked for.');
  if (facts.length === 0) {
    return h('p', { class: 'small' }, isLater
      ? 'No further facts; those of earlier turns are still read.' : 'No facts were found.');
  }
  const injected = facts.filter((fact) => fact.injected).length;
  const best = [...facts].sort((a, b) => b.score - a.score);
  return h('details', { open: window.innerWidth > 700 },
    h('summary', {}, `${plural(facts.length, 'fact')}: ${injected} injected, ` +
      `${facts.length - injected} computed`),
    h('ol', { class: 'facts' }, best.map(factItem)));
}

function measured({ memory, held }) {
  const { times } = memory;
  const steps = kSteps.filter(([name]) => times[name] > 0).map(([name, said, kind]) =>
    ({ kind, value: times[name], title: `${said} ${ms(times[name])}` }));
  const known = steps.reduce((sum, { value }) => sum + value, 0);
  const rest = Math.max(0, times.first_token_ms - known);
  const planned = memory.injected_is_planned ? ' (as asked for)' : '';
  return h('div', { class: 'measured' },
    h('p', { class: 'small' }, h('b', {}, `First token after ${ms(times.first_token_ms)}`),
      ` · all after ${ms(times.total_ms)} · ${kModeNames[memory.mode]}`),
    bar(`Steps to the first token: ${steps.map(({ title }) => title).join(', ')}`,
      [...steps, { kind: 'rest', value: rest, title: `waiting ${ms(rest)}` }],
      times.first_token_ms),
    h('ul', { class: 'legend small' }, steps.map(({ kind, title }) =>
      h('li', {}, h('span', { class: `dot ${kind}` }), title))),
    h('p', { class: 'small' }, `Tokens: ${count(memory.injected_tokens)} injected${planned}, ` +
      `${count(held)} held from before, ${count(memory.prefilled_tokens)} computed`));
}

// The same question both ways: what each took, side by side.
function comparison(pair) {
  const most = Math.max(...pair.map(({ memory }) => memory.times.first_token_ms));
  const row = (one) => {
    const { memory, held } = one;
    const took = memory.times.first_token_ms;
    return h('div', { class: 'measure' },
      h('div', { class: 'split' }, h('span', {}, kModeNames[memory.mode]), h('b', {}, ms(took))),
      bar(`${kModeNames[memory.mode]}: first token after ${ms(took)}`,
        [{ kind: memory.mode === 'kv' ? 'kv' : 'text', value: took, title: ms(took) }], most),
      h('p', { class: 'small' }, `${count(memory.injected_tokens)} injected, ` +
        `${count(held)} held, ${count(memory.prefilled_tokens)} computed`));
  };
  const same = pair[0].text === pair[1].text;
  return h('div', { class: 'comparison' }, h('h3', {}, 'To the first token, both ways'),
    pair.map(row),
    h('p', { class: 'small' }, same ? 'Both answers are the same, letter by letter.'
      : 'The answers differ. The second one:'),
    !same && h('blockquote', {}, pair[1].text));
}

export function chat() {
  const user = userField('Whose facts; empty: no memory');
  const mode = select(kModes, { name: 'mode' });
  const most = h('input', { type: 'number', min: 0, max: 10000, value: 50, name: 'k' });
  const tokens = h('input', { type: 'number', min: 1, max: 100000, value: 200, name: 'tokens' });
  const remember = h('input', { type: 'checkbox', name: 'remember' });
  const log = h('div', { class: 'turns', role: 'log', 'aria-label': 'Dialogue' });
  const question = h('textarea',
    { rows: 2, name: 'question', required: true, placeholder: 'Where does Ana live?' });
  const send = h('button', { type: 'submit', class: 'main' }, 'Ask');
  const stop = h('button',
    { type: 'button', disabled: true, click: () => running?.abort() }, 'Stop');
  let messages = [];
  let running = null;

  const memoryOf = (wanted) => user.input.value ? {
    user: user.input.value, mode: wanted, k: Number(most.value), remember: remember.checked,
  } : undefined;

  // One request at a time.
  async function alone(work) {
    running = new AbortController();
    send.disabled = true;
    stop.disabled = false;
    for (const button of log.querySelectorAll('button')) button.disabled = true;
    try {
      await work(running.signal);
    } catch (error) {
      if (error.name !== 'AbortError') note(error.message, 'bad');
      throw error;
    } finally {
      running = null;
      send.disabled = false;
      stop.disabled = true;
      for (const button of log.querySelectorAll('button')) button.disabled = false;
    }
  }

  // Asks the same once more with the memory brought in the other way; the dialogue stays as it is.
  function askAgain(body, answer) {
    const other = answer.memory.mode === 'kv' ? 'text' : 'kv';
    const box = h('div');
    const button = h('button', {
      type: 'button', class: 'quiet',
      click: () => alone(async (signal) => {
        box.textContent = `Asking again: ${kModeNames[other]} …`;
        const memory = { ...body.memory, mode: other, remember: false };
        const again = await ask({ ...body, memory }, signal, () => {});
        box.replaceChildren(comparison([answer, again]));
      }).catch(() => box.replaceChildren()),
    }, `Ask again: ${kModeNames[other]}`);
    return [h('div', { class: 'buttons' }, button), box];
  }

  async function turn(text) {
    const said = h('p', { class: 'answer', 'aria-busy': 'true' });
    const side = h('aside', { class: 'used', 'aria-label': 'Facts used' });
    const below = h('div');
    const box = h('article', { class: 'turn' }, h('p', { class: 'question' }, text),
      h('div', { class: 'beside' }, h('div', {}, said, below), side));
    log.append(box);
    box.scrollIntoView({ block: 'start', behavior: 'smooth' });
    const asked = [...messages, { role: 'user', content: text }];
    const body = {
      messages: asked, max_tokens: Number(tokens.value), memory: memoryOf(mode.value),
    };
    try {
      await alone(async (signal) => {
        const answer = await ask(body, signal, (piece) => said.append(piece));
        side.append(h('h3', {}, 'Facts used'), factsPanel(answer, messages.length > 0));
        below.append(measured(answer),
          ...(answer.memory.mode === 'none' ? [] : askAgain(body, answer)));
        messages = [...asked, { role: 'assistant', content: answer.text }];
        question.value = '';
      });
    } catch {
      // It was said. What was answered so far stands, but is no part of the dialogue.
      below.append(
        h('p', { class: 'problem' }, 'Not finished; the next question does not see this.'));
    }
    said.removeAttribute('aria-busy');
    question.focus({ preventScroll: true });
  }

  const form = h('form', {
    class: 'panel ask',
    submit: (event) => {
      event.preventDefault();
      if (running === null && question.value.trim()) turn(question.value.trim());
    },
  }, field('Question', question, 'Enter asks; Shift and Enter make a new line.'),
  h('div', { class: 'buttons' }, send, stop,
    h('button', {
      type: 'button',
      click: () => {
        running?.abort();
        messages = [];
        log.replaceChildren();
        question.focus();
      },
    }, 'New dialogue')));
  question.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });

  return {
    element: h('section', { class: 'chat' }, heading('Chat'),
      h('div', { class: 'panel columns' }, user.element, field('Memory comes as', mode),
        field('Facts at most', most), field('Tokens at most', tokens),
        may('write') && h('label', { class: 'check' }, remember, ' Remember what is said')),
      log, form),
    show: () => { user.refresh(); },
  };
}
