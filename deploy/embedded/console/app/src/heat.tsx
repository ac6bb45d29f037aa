// The heat map: keys go down, time goes to the right.
import { useEffect, useRef, useState } from "preact/hooks";
import { bytes, clock, count, plural } from "./format";
import type { Heat as View, HeatRow } from "./types";

type RGB = [number, number, number];
const light: RGB[] = [[233, 238, 240], [165, 216, 226], [43, 147, 168], [7, 76, 92]];
const dark: RGB[] = [[32, 43, 48], [15, 90, 107], [63, 191, 211], [250, 246, 190]];

function colour(ramp: RGB[], v: number): RGB {
  const f = (v / 255) * (ramp.length - 1);
  const i = Math.min(ramp.length - 2, Math.floor(f));
  return [0, 1, 2].map((c) => Math.round(ramp[i]![c]! + (ramp[i + 1]![c]! - ramp[i]![c]!) * (f - i))) as RGB;
}

function decode(cells: string): Uint8Array {
  return Uint8Array.from(atob(cells), (c) => c.charCodeAt(0));
}

/** Whether the page is dark at present. */
function useDark(): boolean {
  const look = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const [is, set] = useState(look);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const change = () => set(look());
    query.addEventListener("change", change);
    const watch = new MutationObserver(change);
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      query.removeEventListener("change", change);
      watch.disconnect();
    };
  }, []);
  return is;
}

export type By = "reads" | "writes" | "bytes";

export function rate(by: By, n: number): string {
  return by === "bytes" ? bytes(n) + "/s" : `${count(n)} ${by}/s`;
}

export function Heat(p: { view: View; by: By; zoom: (first: HeatRow, last: HeatRow) => void }) {
  const { view, by } = p;
  const canvas = useRef<HTMLCanvasElement>(null);
  const isDark = useDark();
  const [spot, set] = useState<{ row: number; column: number }>();
  const [from, drag] = useState<number>();
  const rows = view.rows.length;
  const least = 40; // columns: twenty minutes
  const columns = Math.max(view.columns, least);
  const offset = columns - view.columns;
  const height = Math.round(Math.max(4, Math.min(26, 460 / Math.max(1, rows))) * rows);
  const cells = useRef<Uint8Array>(new Uint8Array());

  useEffect(() => {
    const c = canvas.current;
    if (!c) return;
    cells.current = decode(view.cells);
    c.width = columns;
    c.height = Math.max(1, rows);
    const image = new ImageData(columns, Math.max(1, rows));
    const ramp = isDark ? dark : light;
    const colours = Array.from({ length: 256 }, (_, v) => colour(ramp, v));
    for (let r = 0; r < rows; r++) {
      for (let x = 0; x < columns; x++) {
        const v = x < offset ? 0 : (cells.current[r * view.columns + x - offset] ?? 0);
        image.data.set([...colours[v]!, x < offset ? 90 : 255], (r * columns + x) * 4);
      }
    }
    c.getContext("2d")!.putImageData(image, 0, 0);
  }, [view, isDark, columns, rows]);

  const find = (e: { clientX: number; clientY: number }) => {
    const box = canvas.current!.getBoundingClientRect();
    return {
      row: Math.max(0, Math.min(rows - 1, Math.floor(((e.clientY - box.top) / box.height) * rows))),
      column: Math.max(0, Math.min(columns - 1, Math.floor(((e.clientX - box.left) / box.width) * columns))),
    };
  };
  const describe = (s: { row: number; column: number }) => {
    const row = view.rows[s.row];
    if (!row) return "";
    const place = s.column - offset;
    if (place < 0) return `${row.keyspace}, ${row.label}: nothing was measured then`;
    const v = cells.current[s.row * view.columns + place] ?? 0;
    const value = v === 0 ? 0 : Math.expm1(((v - 1) / 254) * Math.log1p(view.max));
    const at = clock(view.begin + place * view.step);
    return `${row.keyspace}, ${row.label} · ${at} · ${v === 0 ? "nothing" : "about " + rate(by, value)}`;
  };
  const key = (e: KeyboardEvent) => {
    const s = spot ?? { row: 0, column: columns - 1 };
    const to = { ...s };
    if (e.key === "ArrowDown") to.row++;
    else if (e.key === "ArrowUp") to.row--;
    else if (e.key === "ArrowLeft") to.column--;
    else if (e.key === "ArrowRight") to.column++;
    else if (e.key === "Enter") {
      p.zoom(view.rows[s.row]!, view.rows[s.row]!);
      return;
    } else return;
    e.preventDefault();
    set({
      row: Math.max(0, Math.min(rows - 1, to.row)),
      column: Math.max(0, Math.min(columns - 1, to.column)),
    });
  };
  const every = Math.ceil((rows * 18) / Math.max(1, height));
  if (rows === 0) return <p class="empty">There are no partitions here yet.</p>;
  return (
    <div class="heat">
      <div class="heatgrid">
        <ol class="labels" style={{ height: height + "px" }} aria-hidden="true">
          {view.rows.map((r, i) =>
            i % every === 0 ? (
              <li key={r.first} style={{ top: (i / rows) * 100 + "%" }} title={`${r.keyspace}, ${r.label}`}>
                {r.count === 1 ? `${r.keyspace} ${r.label}` : `${r.keyspace} p${r.first}–p${r.last}`}
              </li>
            ) : null,
          )}
        </ol>
        <div class="field">
          <canvas
            ref={canvas}
            tabIndex={0}
            role="application"
            aria-roledescription="heat map"
            aria-label={`Load of ${plural(view.partitions, "partition")} over time, by ${by}. Arrow keys move, Enter zooms. The list below has the same partitions.`}
            style={{ height: height + "px" }}
            onPointerMove={(e) => set(find(e))}
            onPointerLeave={() => { set(undefined); drag(undefined); }}
            onPointerDown={(e) => drag(find(e).row)}
            onPointerUp={(e) => {
              const to = find(e).row;
              if (from === undefined) return;
              drag(undefined);
              p.zoom(view.rows[Math.min(from, to)]!, view.rows[Math.max(from, to)]!);
            }}
            onKeyDown={key}
            onFocus={() => spot ?? set({ row: 0, column: columns - 1 })}
          />
          {spot && (
            <span class="mark" aria-hidden="true" style={{
              left: (spot.column / columns) * 100 + "%", width: 100 / columns + "%",
              top: ((from === undefined ? spot.row : Math.min(from, spot.row)) / rows) * 100 + "%",
              height: ((from === undefined ? 1 : Math.abs(from - spot.row) + 1) / rows) * 100 + "%",
            }} />
          )}
        </div>
        <span />
        <div class="times">
          <span>{view.begin ? clock(view.begin - offset * view.step) : ""}</span>
          <span>now</span>
        </div>
      </div>
      <p class="spot" aria-live="polite">
        {spot ? describe(spot) : "Point at the map for numbers; click a row, or drag over rows, to zoom."}
      </p>
      <p class="scale">
        <span>0</span>
        <span class={"ramp " + (isDark ? "dark" : "light")} aria-hidden="true" />
        <span>{rate(by, view.max)}</span>
      </p>
    </div>
  );
}
