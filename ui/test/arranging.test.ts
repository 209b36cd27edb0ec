/** Lining up nodes, finding them, and the pins that a run of a draft takes. */
import { describe, expect, it } from "vitest";
import { nearOf } from "../src/editor/canvas/dragging";
import { aligned, distributed, inPlaceOf, moving, placesOf } from "../src/editor/canvas/places";
import { matching } from "../src/editor/dialogs/find";
import { UNCHECKED } from "../src/editor/document/checks";
import { WorkflowDocument, viewOf } from "../src/editor/document/document";
import { pinMembers } from "../src/editor/state/pins";
import { CARD, viewport } from "../src/graph/model";
import { decode } from "../src/text/document";

const PLACES = new Map([
  ["a", { x: 0, y: 10 }],
  ["b", { x: 50, y: 100 }],
  ["c", { x: 400, y: 40 }],
]);
const IDS = ["a", "b", "c"];
const TEXT =
  "id: made\nnodes:\n  - id: fetch_price\n    type: http\n    parameters: { url: 'https://shop.test' }\n  - id: tell\n    name: Tell the buyer\n    type: log\nedges:\n  - { src: fetch_price, dst: tell }\n";

const SCREEN = { width: 580, height: 700 };
/** Of cards in a row: those that a view shows completely, those that its left border cuts, and the last one on the screen. */
function shownOf(
  columns: number,
  focus: number,
  width = SCREEN.width,
): { whole: number[]; cutLeft: number[]; last: number } {
  const places = new Map(Array.from({ length: columns }, (_, at) => [`n${at}`, { x: at * 308, y: 0 }]));
  const { x, zoom } = viewport({ places, frames: [], routes: new Map() }, width, SCREEN.height, `n${focus}`);
  const at = (column: number): [number, number] => [column * 308 * zoom + x, (column * 308 + CARD.width) * zoom + x];
  const all = Array.from({ length: columns }, (_, column) => column);
  return {
    last: Math.max(...all.filter((each) => at(each)[0] < width)),
    whole: all.filter((each) => at(each)[0] >= 0 && at(each)[1] <= width),
    cutLeft: all.filter((each) => at(each)[0] < 0 && at(each)[1] > 0),
  };
}

describe("the first view", () => {
  it("cuts no card at its left border and shows the node in focus", () => {
    for (let columns = 4; columns <= 12; columns++) {
      for (let focus = 0; focus < columns; focus++) {
        const { whole, cutLeft } = shownOf(columns, focus);
        expect([cutLeft, whole.includes(focus)], `${focus} of ${columns}`).toEqual([[], true]);
      }
    }
  });

  it("shows the last card if that is in focus or beside it", () => {
    expect(shownOf(8, 7).whole).toContain(7);
    expect(shownOf(8, 6).whole.length).toBeGreaterThanOrEqual(2);
  });

  it("hides no card at the right that a view around the node in focus has", () => {
    // The node in focus begins at 397, the second one behind it at 890 of 980.
    expect(shownOf(12, 4, 980).last).toBe(6);
    expect(shownOf(12, 4, 980).cutLeft).toEqual([]);
  });

  it("shows all of a small graph", () => {
    expect(shownOf(3, 2).whole).toEqual([0, 1, 2]);
  });
});

describe("dragging in a large graph", () => {
  const nodes = Array.from({ length: 100 }, (_, at) => ({
    id: `n${at}`,
    type: "card",
    position: { x: at * 300, y: 0 },
    width: 232,
    height: 66,
    data: {},
  }));
  const wire = (source: string, target: string) => ({
    id: `${source}-${target}`,
    type: "wire" as const,
    source,
    target,
    data: { label: "", isError: false },
  });
  const wires = [...nodes.slice(1).map((each, at) => wire(`n${at}`, each.id)), wire("n0", "n99")];
  const area = { x: 3_000, y: -300, width: 600, height: 900 };

  it("gives the graph the cards near the screen, the edges that pass it and what is moved", () => {
    const near = nearOf(nodes, wires, area, new Set(["n50"]));
    expect(near.nodes.map((each) => each.id)).toEqual([
      "n0",
      "n9",
      "n10",
      "n11",
      "n12",
      "n13",
      "n49",
      "n50",
      "n51",
      "n99",
    ]);
    expect(near.wires.map((each) => each.id)).toContain("n0-n99");
    const known = new Set(near.nodes.map((each) => each.id));
    expect(near.wires.every(({ source, target }) => known.has(source) && known.has(target))).toBe(true);
  });
});

describe("lining up", () => {
  it.each([
    ["left", [0, 0, 0], [10, 100, 40]],
    ["right", [400, 400, 400], [10, 100, 40]],
    ["centre", [200, 200, 200], [10, 100, 40]],
    ["top", [0, 50, 400], [10, 10, 10]],
    ["bottom", [0, 50, 400], [100, 100, 100]],
    ["middle", [0, 50, 400], [55, 55, 55]],
  ] as const)("aligns at %s", (side, x, y) => {
    const made = IDS.map((id) => aligned(PLACES, IDS, side).get(id));
    expect([made.map((each) => each?.x), made.map((each) => each?.y)]).toEqual([x, y]);
  });

  it("distributes between the outer two, in the order of the places", () => {
    expect(IDS.map((id) => distributed(PLACES, IDS, "x").get(id)?.x)).toEqual([0, 200, 400]);
    expect(IDS.map((id) => distributed(PLACES, IDS, "y").get(id)?.y)).toEqual([10, 100, 55]);
  });

  it("writes only the places that change", () => {
    expect(moving(aligned(PLACES, ["a", "b"], "left"), PLACES)).toEqual([
      { do: "move_node", id: "b", position: { x: 0, y: 100 } },
    ]);
  });

  it("keeps the corner of a selection that is laid out", () => {
    const made = new Map([
      ["b", { x: 0, y: 0 }],
      ["c", { x: 300, y: 0 }],
    ]);
    expect([...inPlaceOf(made, PLACES, ["b", "c"])]).toEqual([
      ["b", { x: 50, y: 40 }],
      ["c", { x: 350, y: 40 }],
    ]);
  });

  it("places a new node beside its neighbour, not on another card", () => {
    const view = viewOf(
      decode(
        "nodes:\n  - {id: a, type: x, position: {x: 0, y: 0}}\n  - {id: b, type: x, position: {x: 308, y: 0}}\n  - {id: c, type: x}\nedges:\n  - {src: a, dst: b}\n  - {src: a, dst: c}\n",
        "yaml",
      ),
    );
    expect(placesOf(view, UNCHECKED, new Map()).get("c")).toEqual({ x: 308, y: 100 });
  });

  it("moves many nodes in one step of undo", () => {
    const document = new WorkflowDocument(TEXT, { text: TEXT, version: null });
    document.act(
      ["fetch_price", "tell"].map((id, at) => ({ do: "move_node" as const, id, position: { x: at, y: at } })),
      "move 2 nodes",
    );
    expect(document.view.nodes.map((each) => each.position)).toEqual([
      { x: 0, y: 0 },
      { x: 1, y: 1 },
    ]);
    document.undo();
    expect(document.text).toBe(TEXT);
  });
});

describe("a view after a change", () => {
  it("keeps the nodes that the change did not touch", () => {
    const document = new WorkflowDocument(TEXT, { text: TEXT, version: null });
    const [first] = document.view.nodes;
    document.act({ do: "set", path: ["nodes", 1, "name"], value: "Tell everybody" }, "rename");
    expect(document.view.nodes[0]).toBe(first);
    expect(document.view.nodes[1]?.name).toBe("Tell everybody");
  });
});

describe("finding nodes", () => {
  const view = viewOf(decode(TEXT, "yaml"));
  it.each([
    ["fetch", ["fetch_price"]],
    ["buyer", ["tell"]],
    ["shop.test", ["fetch_price"]],
    ["log", ["tell"]],
    ["", ["fetch_price", "tell"]],
    ["absent", []],
  ])("by %s", (search, ids) => {
    expect(matching(view, search).map((each) => each.id)).toEqual(ids);
  });
});

describe("pins of a run", () => {
  it("carry outputs and outlets of the nodes that exist", () => {
    const view = viewOf(decode(TEXT, "yaml"));
    const pins = new Map([
      ["tell", { output: { ok: true }, outlet: null }],
      ["fetch_price", { output: [1], outlet: "true" }],
      ["gone", { output: 1, outlet: null }],
    ]);
    expect(JSON.parse(`{"a":0${pinMembers(pins, view)}}`)).toEqual({
      a: 0,
      pins: { tell: { ok: true }, fetch_price: [1] },
      outlets: { fetch_price: "true" },
    });
    expect(pinMembers(new Map(), view)).toBe("");
  });
});
