// Asking the gateway. The key lives as long as the browser's tab does.

const kKeyName = 'inferscale-key';

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Who asks, as the gateway sees it: {tenant, access, key_id}.
export const session = { tenant: '', access: 'read', key_id: null };
const kRanks = ['read', 'write', 'admin'];
export const may = (access) => kRanks.indexOf(session.access) >= kRanks.indexOf(access);
export const seesAll = () => may('admin') || session.key_id === null;

export const hasKey = () => sessionStorage.getItem(kKeyName) !== null;
export const forgetKey = () => sessionStorage.removeItem(kKeyName);

let onKeyNeeded = () => {};
export const whenKeyNeeded = (then) => { onKeyNeeded = then; };

async function send(method, path, { body, signal, key = sessionStorage.getItem(kKeyName) } = {}) {
  const headers = new Headers();
  if (body !== undefined) headers.set('Content-Type', 'application/json');
  if (key !== null) headers.set('Authorization', `Bearer ${key}`);
  let answer;
  try {
    answer = await fetch(path, {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The gateway does not answer.');
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let message = `The gateway answered ${answer.status}.`;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // Not the gateway's own answer: a proxy's.
  }
  throw new ApiError(answer.status, message);
}

async function asked(method, path, options) {
  try {
    return await send(method, path, options);
  } catch (error) {
    if (error.status === 401) onKeyNeeded(error);
    throw error;
  }
}

export const call = async (method, path, body, options = {}) =>
  (await asked(method, path, { ...options, body })).json();
export const get = (path, options) => call('GET', path, undefined, options);

// Finds out who asks; with `key`, keeps it if it is worth something.
export async function enter(key) {
  let answer;
  try {
    answer = await send('GET', '/v1/ping', key === undefined ? {} : { key });
  } catch (error) {
    // A key is ASCII; a browser refuses to send anything else.
    if (error instanceof TypeError) throw new ApiError(401, 'this key is not known');
    throw error;
  }
  if (key !== undefined) sessionStorage.setItem(kKeyName, key);
  Object.assign(session, await answer.json());
}

// Server-sent events of a request; each one's data.
export async function* events(path, body, signal) {
  const answer = await asked('POST', path, { body, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split('\n\n');
    text = parts.pop();
    for (const part of parts) {
      const data = part.split('\n').filter((line) => line.startsWith('data:'))
        .map((line) => line.slice(5).trimStart()).join('\n');
      if (data) yield data;
    }
  }
}
