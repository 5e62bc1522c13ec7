// Formatting of numbers, times and sizes.

const NUMBER = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const number = (value) => NUMBER.format(value);

/** A count: `~` marks an estimate, `+` a lower bound. */
export function count({ value, how }) {
  const text = value >= 100_000 ? SHORT.format(value) : number(how === 'estimate' ? round2(value) : value);
  return how === 'estimate' ? `~${text}` : how === 'at least' ? `${text}+` : text;
}

/** A rate per minute: `~` marks an estimate, `+` a lower bound. */
export function ratePerMinute(rate, how) {
  const text = rate >= 10 ? number(rate) : rate.toFixed(1);
  return how === 'estimate' ? `~${text}` : how === 'at least' ? `${text}+` : text;
}

/** An estimate in words. */
export const about = (total) => `about ${count({ ...total, how: 'estimate' }).slice(1)}`;

/** Rounds an estimate to two significant digits. */
function round2(value) {
  if (value < 100) return value;
  const unit = 10 ** (Math.floor(Math.log10(value)) - 1);
  return Math.round(value / unit) * unit;
}

/** A duration: 340 ms, 12 s, 3 min 20 s, 2 h 5 min, 4 d 3 h. */
export function duration(millis) {
  if (!Number.isFinite(millis)) return '–';
  if (millis < 1000) return `${Math.max(Math.round(millis), 0)} ms`;
  if (millis < 10_000) return `${(millis / 1000).toFixed(1).replace('.0', '')} s`;
  const seconds = Math.round(millis / 1000);
  if (seconds < 60) return `${seconds} s`;
  const two = (big, unit, small, smallUnit) => (small > 0 ? `${big} ${unit} ${small} ${smallUnit}` : `${big} ${unit}`);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return two(minutes, 'min', minutes < 10 ? seconds % 60 : 0, 's');
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return two(hours, 'h', minutes % 60, 'min');
  return two(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

/** A time relative to now. */
export function relative(time, now) {
  const difference = time - now;
  if (Math.abs(difference) < 1000) return 'now';
  const rough = coarse(Math.abs(difference));
  return difference > 0 ? `in ${rough}` : `${rough} ago`;
}

function coarse(millis) {
  const seconds = Math.floor(millis / 1000);
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  if (hours < 36) return `${hours} h`;
  return `${Math.round(hours / 24)} d`;
}

/** The offset of the local time zone at a time: UTC+01:00. */
export function zone(time) {
  const minutes = -new Date(time).getTimezoneOffset();
  if (minutes === 0) return 'UTC';
  const pad = (value) => String(value).padStart(2, '0');
  return `UTC${minutes < 0 ? '−' : '+'}${pad(Math.floor(Math.abs(minutes) / 60))}:${pad(Math.abs(minutes) % 60)}`;
}

/** The local time to the second, with its zone. */
export const absolute = (time) => `${fullTime(time).slice(0, 19)} ${zone(time)}`;

/** The full local time. */
export function fullTime(time) {
  const date = new Date(time);
  const pad = (value, width = 2) => String(value).padStart(width, '0');
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

export function clockTime(time, span = 0) {
  const text = fullTime(time);
  if (span > 36 * 3_600_000) return text.slice(5, 10);
  return span > 0 && span < 600_000 ? text.slice(11, 19) : text.slice(11, 16);
}

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  if (size < 1024 * 1024) return `${(size / 1024).toFixed(1)} KiB`;
  return `${(size / 1024 / 1024).toFixed(1)} MiB`;
}

export function dollars(value) {
  if (value === 0) return '$0';
  if (value < 0.01) return `$${value.toFixed(5)}`;
  return `$${value.toFixed(value < 1 ? 3 : 2)}`;
}

export function percent(share) {
  const value = share * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

export const plural = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** What a search cost, as `qo list` says it, and whether there is more to read. */
export function searchCost(examined, isComplete) {
  return `the search read ${plural(examined, 'task')}${isComplete ? '' : ' and is not complete'}`;
}
