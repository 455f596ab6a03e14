// Starts the page: asks for a key if one is needed, and shows the section that the address names.
import { enter, forgetKey, hasKey, session, whenKeyNeeded } from './api.js';
import { field, formDialog, h, note, svg } from './dom.js';
import { chat } from './chat.js';
import { keys } from './keys.js';
import { memories } from './memories.js';
import { overview } from './overview.js';
import { requests } from './requests.js';
import { users } from './users.js';

// Each is made once, when it is first asked for, as {element, show(params), hide()}.
const kSections = {
  overview: { title: 'Overview', make: overview, icon: 'M4 20V10M10 20V4M16 20v-7M22 20H2' },
  memories: {
    title: 'Memories', make: memories,
    icon: 'M4 6c0-4 16-4 16 0v12c0 4-16 4-16 0zM4 6c0 4 16 4 16 0M4 12c0 4 16 4 16 0',
  },
  chat: { title: 'Chat', make: chat, icon: 'M3 5h18v12H11l-5 4v-4H3z' },
  users: {
    title: 'Users', make: users,
    icon: 'M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21c0-9 14-9 14 0' +
      'M16 4a4 4 0 0 1 0 7M18 14c3 1 4 4 4 7',
  },
  keys: {
    title: 'Keys', make: keys, icon: 'M8 20a5 5 0 1 0 0-10 5 5 0 0 0 0 10zM11.5 11.5 21 2M16 7l4 4',
  },
  requests: {
    title: 'Requests', make: requests, icon: 'M8 6h13M8 12h13M8 18h13M3 6h1M3 12h1M3 18h1',
  },
};

const main = document.getElementById('main');
const made = {};
let shown = null;

function showSection(moveFocus) {
  const [name, query] = location.hash.slice(1).split('?');
  const current = name in kSections ? name : 'overview';
  shown?.hide?.();
  made[current] ??= kSections[current].make();
  shown = made[current];
  main.replaceChildren(shown.element);
  document.title = `${kSections[current].title} · InferScale`;
  for (const link of document.querySelectorAll('#sections a')) {
    if (link.hash === `#${current}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  shown.show?.(new URLSearchParams(query));
  window.scrollTo(0, 0);
  if (moveFocus) shown.element.querySelector('h1').focus();
}

function drawSections() {
  document.getElementById('sections').append(...Object.entries(kSections).map(([name, section]) =>
    h('a', { href: `#${name}` },
      svg('svg', { viewBox: '0 0 24 24', 'aria-hidden': 'true' }, svg('path', { d: section.icon })),
      h('span', {}, section.title))));
  document.getElementById('skip').addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
  });
}

function drawTheme() {
  const button = document.getElementById('theme');
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => (root.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark';
  const draw = () => { button.textContent = isDark() ? 'Light colours' : 'Dark colours'; };
  button.addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    localStorage.setItem('inferscale-theme', root.dataset.theme);
    draw();
  });
  system.addEventListener('change', draw);
  draw();
}

let asking = false;
function askForKey(problem) {
  if (asking) return;
  asking = true;
  const key = h('input',
    { type: 'password', autocomplete: 'off', required: true, autofocus: true });
  formDialog('A key is needed', [
    h('p', {}, problem),
    field('Key', key, 'Kept in this tab only, and sent in a header.'),
  ], 'Open', async () => {
    await enter(key.value.trim());
    location.reload();  // nothing stays of what another key was shown
  }, { closable: false });
}

function drawSession() {
  const who = session.key_id === null ? 'no key needed'
    : `key ${session.key_id}, ${session.access}`;
  document.getElementById('who').append(h('b', {}, session.tenant), h('span', {}, who));
  const forget = document.getElementById('forget');
  forget.hidden = !hasKey();
  forget.addEventListener('click', () => {
    forgetKey();
    location.reload();
  });
}

async function start() {
  drawTheme();
  whenKeyNeeded((error) => askForKey(error.message));
  try {
    await enter();
  } catch (error) {
    if (error.status === 401) {
      askForKey(hasKey() ? error.message : 'This gateway answers those who have one.');
    } else {
      note(error.message, 'bad');
    }
    return;
  }
  drawSession();
  drawSections();
  window.addEventListener('hashchange', () => showSection(true));
  showSection(false);
}

start();
