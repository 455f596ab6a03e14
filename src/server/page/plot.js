// Plots of points, drawn as SVG at the width that there is.
import { h, svg } from './dom.js';
import { hourAndMinute, timeOfDay } from './format.js';

const kHeights = { normal: 220, small: 130 };
const kLeft = 58;
const kRight = 14;
const kTop = 12;
const kBottom = 38;

// Round numbers from 0 to at least `most`, about `wanted` of them.
export function ticks(most, wanted) {
  const rough = (most > 0 ? most : 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const out = [];
  for (let n = 0; ; ++n) {
    out.push(Number((n * step).toPrecision(12)));
    if (n * step >= most) return out;
  }
}

// In seconds.
const kTimeSteps = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400,
];

// Round times between two, about `wanted` of them, and how to write them.
export function timeTicks(from, to, wanted) {
  const rough = (to - from) / 1000 / wanted;
  const step = 1000 * (kTimeSteps.find((one) => one >= rough) ?? Math.ceil(rough / 86400) * 86400);
  const out = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) out.push(at);
  return { at: out, format: step < 60000 ? timeOfDay : hourAndMinute };
}

// Two series are told apart without colours, too.
function mark(shape, x, y, title) {
  const node = shape === 'square'
    ? svg('rect', { x: x - 3.5, y: y - 3.5, width: 7, height: 7, rx: 1 })
    : svg('circle', { cx: x, cy: y, r: 4 });
  node.append(svg('title', {}, title));
  return node;
}

// {title, nothing, small, x: {label, format, isTime}, y: {format, most}, series: {name: {label,
// shape, line}}}. What draw() takes: {name: [{x, y, title}]}, and what is said of each series
// beside its name. The x axis begins at 0, or if it is time (in ms) at the first point.
export class Plot {
  constructor(options) {
    this.options = options;
    this.points = {};
    this.box = h('div', { class: 'plot' });
    this.legend = h('ul', { class: 'legend' });
    this.element = h('figure', {}, h('figcaption', {}, options.title), this.legend, this.box);
    this.width = 0;
    new ResizeObserver(() => {
      if (Math.abs(this.box.clientWidth - this.width) > 1) this.render();
    }).observe(this.box);
  }

  draw(points, summaries) {
    this.points = points;
    this.summaries = summaries;
    this.legend.replaceChildren(...Object.entries(this.options.series).map(([name, series]) =>
      h('li', {},
        svg('svg', { viewBox: '0 0 12 12', class: `series ${name}`, 'aria-hidden': 'true' },
          mark(series.shape, 6, 6, '')),
        h('span', {}, `${series.label}: ${summaries[name]}`))));
    this.render();
  }

  horizontal(values) {
    const wanted = this.width / 110;
    const most = Math.max(...values);
    if (this.options.x.isTime) {
      const least = Math.min(...values);
      return { least, span: Math.max(most - least, 1), ...timeTicks(least, most, wanted) };
    }
    const at = ticks(most, wanted);
    return { least: 0, span: at.at(-1), at, format: this.options.x.format };
  }

  render() {
    this.width = this.box.clientWidth;
    if (this.width === 0) return;
    const { x, y, series, title, small } = this.options;
    const height = kHeights[small ? 'small' : 'normal'];
    const all = Object.values(this.points).flat();
    if (all.length === 0) {
      this.box.replaceChildren(h('p', { class: 'empty' }, this.options.nothing));
      return;
    }
    const { least, span, at: xTicks, format } = this.horizontal(all.map((point) => point.x));
    const yTicks = ticks(y.most ?? Math.max(...all.map((point) => point.y)), small ? 2 : 4);
    const atX = (value) => kLeft + ((value - least) / span) * (this.width - kLeft - kRight);
    const atY = (value) => height - kBottom - (value / yTicks.at(-1)) * (height - kTop - kBottom);
    const summary = Object.entries(series).map(([name, one]) =>
      `${one.label}: ${this.summaries[name]}`).join('; ');
    this.box.replaceChildren(svg('svg', {
      viewBox: `0 0 ${this.width} ${height}`, height, role: 'img',
      'aria-label': `${title}. ${summary}`,
    },
    yTicks.map((tick) => [
      svg('line',
        { class: 'grid', x1: kLeft, x2: this.width - kRight, y1: atY(tick), y2: atY(tick) }),
      svg('text', { x: kLeft - 8, y: atY(tick) + 4, 'text-anchor': 'end' }, y.format(tick)),
    ]),
    xTicks.map((tick) =>
      svg('text', {
        x: atX(tick), y: height - kBottom + 18,
        'text-anchor': atX(tick) > this.width - 36 ? 'end' : 'middle',
      }, format(tick))),
    svg('text',
      { class: 'axis', x: (kLeft + this.width) / 2, y: height - 4, 'text-anchor': 'middle' },
      x.label),
    Object.entries(this.points).map(([name, points]) =>
      svg('g', { class: `series ${name}` },
        series[name].line && svg('polyline', {
          points: points.map((point) => `${atX(point.x)},${atY(point.y)}`).join(' '),
        }),
        points.map((point) =>
          mark(series[name].shape, atX(point.x), atY(point.y), point.title))))));
  }
}

// A bar of parts: [{kind, value, title}], of `whole`.
export function bar(label, parts, whole) {
  const box = h('div', { class: 'meter', role: 'img', 'aria-label': label });
  for (const { kind, value, title } of parts) {
    if (!(value > 0)) continue;
    const part = h('span', { class: kind, title });
    part.style.width = `${whole > 0 ? Math.min(100, (100 * value) / whole) : 0}%`;
    box.append(part);
  }
  return box;
}
