// Lines over the last hour.
import { useState } from "preact/hooks";
import { clock } from "./format";

export interface Series {
  name: string;
  values: number[];
  /** A line drawn second: quieter. */
  second?: boolean;
}

/** A number above all values that reads well: 1, 2 or 5 times a power of ten. */
function ceiling(most: number): number {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((f) => f * power).find((c) => c >= most)!;
}

export function Chart(p: { title: string; begin: number; step: number; series: Series[]; format: (n: number) => string; gaps?: boolean }) {
  const [at, set] = useState<number>();
  const length = Math.max(...p.series.map((s) => s.values.length), 0);
  const shown = Math.max(length, 60); // at least ten minutes wide
  const offset = shown - length;
  const top = ceiling(Math.max(...p.series.flatMap((s) => s.values), 0));
  const place = at === undefined || at >= length ? length - 1 : at;
  const x = (i: number) => ((offset + i + 0.5) / shown) * 100;
  const path = (values: number[]) => {
    let d = "";
    let open = false;
    values.forEach((v, i) => {
      if (p.gaps && v === 0) {
        open = false;
        return;
      }
      d += `${open ? "L" : "M"}${x(i).toFixed(2)} ${(100 - (v / top) * 100).toFixed(2)}`;
      open = true;
    });
    return d;
  };
  const now = (s: Series) => (length > 0 ? p.format(s.values[place] ?? 0) : "–");
  return (
    <figure class="chart">
      <figcaption>
        <span class="charttitle">{p.title}</span>
        <span class="legend">
          {p.series.map((s) => (
            <span key={s.name} class={s.second ? "second" : "first"}>{s.name} <b>{now(s)}</b></span>
          ))}
        </span>
      </figcaption>
      <div class="plot" role="img"
        aria-label={`${p.title} over the last ${Math.round((length * p.step) / 60000)} minutes: ` + p.series.map((s) => `${s.name} ${now(s)}`).join(", ")}
        onPointerMove={(e) => {
          const box = e.currentTarget.getBoundingClientRect();
          const i = Math.floor(((e.clientX - box.left) / box.width) * shown) - offset;
          set(Math.max(0, Math.min(length - 1, i)));
        }}
        onPointerLeave={() => set(undefined)}>
        <span class="most">{p.series.some((s) => s.values.some((v) => v > 0)) ? p.format(top) : "nothing in this time"}</span>
        <svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
          {p.series.map((s) => (
            <path key={s.name} class={s.second ? "second" : "first"} d={path(s.values)} />
          ))}
          {at !== undefined && length > 0 && <line x1={x(place)} x2={x(place)} y1="0" y2="100" />}
        </svg>
      </div>
      <div class="times">
        <span>{length > 0 ? clock(p.begin - offset * p.step) : ""}</span>
        <span>{at !== undefined && length > 0 ? clock(p.begin + place * p.step) : "now"}</span>
      </div>
    </figure>
  );
}
