/** The heat grid: how many cells go across, and the colour of each byte. */

export type Palette = { state: (name: string) => string; low: string; high: string; none: string; codes: string[] };

const MAX_CELL = 18;

/** The number of cells in a row and their size, so that the grid fits the room and is about as high as wide. */
export function columns(items: number, room: number): { across: number; cell: number } {
  if (items === 0) return { across: 1, cell: MAX_CELL };
  const wide = Math.max(120, room);
  for (const cell of [MAX_CELL, 14, 11, 8, 6, 5, 4, 3, 2]) {
    const across = Math.max(1, Math.floor(wide / cell));
    if (Math.ceil(items / across) * cell <= 380) return { across: Math.min(across, items), cell };
  }
  // Many items: a square image, shown at two pixels a cell.
  return { across: Math.min(Math.max(1, Math.floor(wide / 2)), Math.ceil(Math.sqrt(items))), cell: 2 };
}

function channels(text: string): [number, number, number] {
  const hex = /^#([0-9a-f]{6})$/i.exec(text);
  if (!hex?.[1]) return [128, 128, 128];
  const value = Number.parseInt(hex[1], 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** A colour as the bytes of an image: alpha, blue, green, red. */
export function pixel(text: string): number {
  const [red, green, blue] = channels(text);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function mix(low: string, high: string, share: number): number {
  const one = channels(low);
  const two = channels(high);
  const at = (index: 0 | 1 | 2): number => Math.round(one[index] + (two[index] - one[index]) * share);
  return ((255 << 24) | (at(2) << 16) | (at(1) << 8) | at(0)) >>> 0;
}

/** The pixel of each byte, by what the bytes are. */
export function colourer(
  by: "state" | "duration" | "attempts" | "code",
  legend: readonly string[],
  palette: Palette,
): Uint32Array {
  const found = new Uint32Array(256).fill(pixel(palette.none));
  for (let value = 0; value < 256; value += 1) {
    if (by === "state") {
      const name = legend[value];
      if (name !== undefined) found[value] = pixel(palette.state(name));
    } else if (by === "code") {
      if (value > 0) found[value] = pixel(palette.codes[(value - 1) % palette.codes.length] ?? palette.none);
    } else if (value > 0) {
      const share = by === "duration" ? Math.min(1, value / 160) : Math.min(1, (value - 1) / 5);
      found[value] = mix(palette.low, palette.high, share);
    }
  }
  return found;
}
