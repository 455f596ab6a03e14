// Numbers and times for people.

const whole = new Intl.NumberFormat('en');
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });
const minutes = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export const count = (n) => whole.format(n);

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    ++unit;
  }
  return `${unit > 0 && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

export function ms(n) {
  if (n >= 10000) return `${(n / 1000).toFixed(1)} s`;
  return `${n >= 100 ? Math.round(n) : n.toFixed(n >= 10 ? 1 : 2)} ms`;
}

export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

// Of a text or of ms.
export const timeOfDay = (time) => clock.format(new Date(time));
export const hourAndMinute = (time) => minutes.format(new Date(time));
export const dateAndTime = (time) => moment.format(new Date(time));

const kTiers = { memory: 'host memory', engine: 'the engine’s store' };
export const tierName = (tier) => kTiers[tier] ?? tier;

export function median(numbers) {
  if (numbers.length === 0) return null;
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
