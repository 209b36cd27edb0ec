/** How well a text matches: 0 not at all, more is better. Letters may be apart but must be in order. */
export function score(text: string, wanted: string): number {
  const low = text.toLowerCase();
  const find = wanted.toLowerCase().trim();
  if (find === "") return 1;
  const at = low.indexOf(find);
  if (at === 0) return 100;
  if (at > 0) return /[\s\-_/.]/.test(low[at - 1] ?? "") ? 80 : 60;
  let place = 0;
  for (const letter of find) {
    place = low.indexOf(letter, place) + 1;
    if (place === 0) return 0;
  }
  return 20;
}
