/** The picture of a definition: places of nodes, frames of splits and bends of edges, as the server lays them out. */
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { CARD, arrange, bodies, frames, type Definition, type Kind, type Picture } from "../graph/model";
import { withNumbers } from "../text/json";
import { readJson } from "./client";

export type LayoutView = {
  nodes: Record<string, { x: number; y: number }>;
  edges: Record<string, { points: [number, number][] }>;
  frames: Record<string, { x: number; y: number; width: number; height: number }>;
};

/** The server places boxes that are higher than cards, so that a frame has room for its title. */
const SPACE = 32;

export function pictureOf(read: LayoutView): Picture {
  const layout = withNumbers(read);
  const places = new Map(Object.entries(layout.nodes).map(([id, each]) => [id, { x: each.x, y: each.y + SPACE / 2 }]));
  const routes = new Map(
    Object.entries(layout.edges).map(([id, each]) => [id, each.points.map(([x, y]) => ({ x, y }))]),
  );
  const boxes = Object.entries(layout.frames);
  const inside = (one: (typeof boxes)[number], two: (typeof boxes)[number]): boolean =>
    one[1].x > two[1].x && one[1].y >= two[1].y && one[1].x + one[1].width < two[1].x + two[1].width;
  const drawn = boxes.map((each) => ({
    split: each[0],
    depth: boxes.filter((other) => inside(each, other)).length,
    ...each[1],
  }));
  return { places, routes, frames: drawn.sort((a, b) => a.depth - b.depth) };
}

/** Read before the definition is there, so that the graph waits for the slower of both and not for one after the other. */
export function useLayout(hash: string | null) {
  return useQuery({
    queryKey: ["layout", hash],
    queryFn: () =>
      readJson<LayoutView>(`/api/v1/definitions/${hash}/layout?width=${CARD.width}&height=${CARD.height + SPACE}`),
    enabled: hash !== null,
    staleTime: Infinity,
    retry: false,
  });
}

/** The picture of a stored definition; of one that is not stored, such as a difference, it is computed here. */
export function usePicture(
  hash: string | null,
  definition: Definition,
  kinds: Record<string, Kind> | undefined,
): Picture | null {
  const { data, isError } = useLayout(hash);
  return useMemo(() => {
    if (data) return pictureOf(data);
    if (hash !== null && !isError) return null;
    const places = arrange(definition);
    return { places, frames: frames(places, bodies(definition, kinds)), routes: new Map() };
  }, [data, isError, hash, definition, kinds]);
}
