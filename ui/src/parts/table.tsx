/** Tables whose columns are data. */
import type { CSSProperties, JSX, Key, ReactNode } from "react";
import { Listed, type ListProps } from "./reading";

export type Column<T> = {
  title: string;
  cell: (row: T) => ReactNode;
  /** Whether only screen readers have the title. */
  untitled?: boolean;
  className?: string;
  style?: CSSProperties;
};

type TableProps<T> = { columns: readonly Column<T>[]; keyOf: (row: T) => Key };

export function Table<T>({ columns, keyOf, rows }: TableProps<T> & { rows: readonly T[] }): JSX.Element {
  return (
    <table className="table">
      <thead>
        <tr>
          {columns.map(({ title, untitled }) => (
            <th key={title}>{untitled ? <span className="sr">{title}</span> : title}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={keyOf(row)}>
            {columns.map(({ title, cell, className, style }) => (
              <td key={title} className={className} style={style}>
                {cell(row)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The list of a resource: a card that scrolls, with a table in it. */
export function TableCard<T>({
  label,
  columns,
  keyOf,
  ...list
}: ListProps<T> & TableProps<T> & { label: string }): JSX.Element {
  return (
    <div className="card table-scroll" role="group" aria-label={label} tabIndex={0}>
      <Listed {...list}>{(rows) => <Table columns={columns} keyOf={keyOf} rows={rows} />}</Listed>
    </div>
  );
}
