/** What lists show before they are read, when they fail, when there is nothing, and as tables. */
import { createElement, type ReactElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import { Answered, Listed } from "../src/parts/reading";
import { Table, TableCard, type Column } from "../src/parts/table";

type Row = { id: string; name: string };

const ROWS: Row[] = [
  { id: "1", name: "first" },
  { id: "2", name: "second" },
];
const COLUMNS: Column<Row>[] = [
  { title: "Name", cell: (each) => each.name },
  { title: "Actions", untitled: true, className: "tabular", cell: (each) => createElement("b", null, each.id) },
];
const READ = { isError: false, isPending: false, error: null, refetch: () => {} };
const PENDING = { ...READ, isPending: true };
const FAILED = { ...READ, isError: true, error: new Error("The store is down.") };

const shown = (element: ReactElement): string => renderToStaticMarkup(element);

describe("a list that is read", () => {
  const list = (query: typeof FAILED | typeof READ, rows: Row[] | undefined, keeps = false): string =>
    shown(
      createElement(Listed<Row>, {
        query,
        rows,
        keeps,
        skeleton: { rows: 2 },
        blank: createElement("p", null, "Nothing yet"),
        // biome-ignore lint/correctness/noChildrenProp: the rows are a function, which createElement takes as a property.
        children: (found) => found.map((each) => each.name).join(", "),
      }),
    );

  it("shows placeholders, then the rows", () => {
    expect(list(PENDING, undefined)).toContain('aria-busy="true"');
    expect(list(READ, ROWS)).toBe("first, second");
  });

  it("says that there is nothing", () => {
    expect(list(READ, [])).toBe("<p>Nothing yet</p>");
  });

  it("shows a failure instead of rows, unless it keeps them", () => {
    expect(list(FAILED, ROWS)).toContain("The store is down.");
    expect(list(FAILED, ROWS)).not.toContain("first");
    expect(list(FAILED, ROWS, true)).toBe("first, second");
    expect(list(FAILED, [], true)).toContain("The store is down.");
  });
});

describe("an answer that is read", () => {
  const answer = (query: typeof FAILED | typeof READ, data: string | undefined, keeps = false): string =>
    shown(
      createElement(Answered<string>, {
        query: { ...query, data },
        keeps,
        skeleton: { rows: 2 },
        // biome-ignore lint/correctness/noChildrenProp: as above.
        children: (found) => found,
      }),
    );

  it("shows placeholders, then the answer", () => {
    expect(answer(PENDING, undefined)).toContain('aria-busy="true"');
    expect(answer(READ, "1.10")).toBe("1.10");
  });

  it("shows a failure instead of an old answer, unless it keeps it", () => {
    expect(answer(FAILED, "old")).not.toContain("old");
    expect(answer(FAILED, "old", true)).toBe("old");
  });
});

describe("a table", () => {
  it("has the titles and cells of its columns in their order", () => {
    expect(shown(createElement(Table<Row>, { columns: COLUMNS, keyOf: (each) => each.id, rows: ROWS }))).toBe(
      '<table class="table"><thead><tr><th>Name</th><th><span class="sr">Actions</span></th></tr></thead><tbody>' +
        '<tr><td>first</td><td class="tabular"><b>1</b></td></tr>' +
        '<tr><td>second</td><td class="tabular"><b>2</b></td></tr></tbody></table>',
    );
  });

  it("stands in a card that the keyboard scrolls", () => {
    const card = shown(
      createElement(TableCard<Row>, {
        label: "Table of rows",
        query: READ,
        rows: ROWS,
        skeleton: { rows: 2 },
        blank: createElement("p"),
        columns: COLUMNS,
        keyOf: (each) => each.id,
      }),
    );
    expect(card).toMatch(/^<div class="card table-scroll" role="group" aria-label="Table of rows" tabindex="0"><table/);
  });
});
