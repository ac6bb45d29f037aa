// Numbers, bytes and times for people.

const whole = new Intl.NumberFormat("en");
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 });

/** A number with separators; large ones shortened: 12,345 and 1.2 M. */
export function count(n: number): string {
  if (n >= 1e9) return tenth.format(n / 1e9) + " G";
  if (n >= 1e6) return tenth.format(n / 1e6) + " M";
  return whole.format(Math.round(n));
}

/** Bytes in binary units. */
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  return (unit === 0 || n >= 100 ? whole.format(Math.round(n)) : tenth.format(n)) + " " + units[unit];
}

/** Microseconds as the unit that fits. */
export function micros(n: number): string {
  if (n <= 0) return "–";
  if (n < 1000) return Math.round(n) + " µs";
  if (n < 1e6) return (n < 1e4 ? tenth.format(n / 1000) : whole.format(Math.round(n / 1000))) + " ms";
  return tenth.format(n / 1e6) + " s";
}

/** A duration in seconds, in its two largest units. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min" + (s % 60 && s < 600 ? ` ${s % 60} s` : "");
  if (s < 86400) return Math.floor(s / 3600) + " h" + (s % 3600 >= 60 ? ` ${Math.floor((s % 3600) / 60)} min` : "");
  return Math.floor(s / 86400) + " d" + (s % 86400 >= 3600 ? ` ${Math.floor((s % 86400) / 3600)} h` : "");
}

/** How long ago a moment in Unix milliseconds was. */
export function ago(unixMillis: number | undefined): string {
  if (!unixMillis) return "–";
  return span((Date.now() - unixMillis) / 1000) + " ago";
}

/** The time of day, with the date if it is not today's. */
export function clock(unixMillis: number | undefined): string {
  if (!unixMillis) return "–";
  const at = new Date(unixMillis);
  const time = at.toTimeString().slice(0, 8);
  return at.toDateString() === new Date().toDateString() ? time : at.toISOString().slice(0, 10) + " " + time;
}

/** "1 node", "3 nodes". */
export function plural(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}
