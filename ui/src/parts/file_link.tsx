/** Links to download: of binary data that a value refers to, and of a text that the page has made. */
import { Download, FileDown } from "lucide-react";
import { useEffect, useState, type JSX } from "react";
import { bytes } from "./format";

export type FileReference = { href: string; name: string; type: string; size: number };

/** The file that an object refers to, or null: `{"blob": "<execution>/<key>", "size": …, "content_type": …, "name": …}`. */
export function fileOf(value: Record<string, unknown>): FileReference | null {
  const { blob, size, content_type: type, name } = value;
  if (typeof blob !== "string" || typeof size !== "number") return null;
  const found = /^(x[0-9a-f]{26})\/([\w./-]+)$/.exec(blob);
  if (!found || blob.includes("..")) return null;
  return {
    href: `/api/v1/executions/${found[1]}/blobs/${found[2]}`,
    name: typeof name === "string" && name ? name : "file",
    type: typeof type === "string" ? type : "",
    size,
  };
}

export function FileLink({ file }: { file: FileReference }): JSX.Element {
  return (
    <a className="tag" href={file.href} download={file.name} aria-label={`Download ${file.name}`}>
      <FileDown size={12} aria-hidden="true" />
      {[file.name, file.type, bytes(file.size)].filter(Boolean).join(" · ")}
    </a>
  );
}

/** Downloads a text as a file. */
export function DownloadText({ name, text, label }: { name: string; text: string; label: string }): JSX.Element {
  const [href, setHref] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    setHref(made);
    return () => URL.revokeObjectURL(made);
  }, [text]);
  return (
    <a className="icon-button" data-size="small" href={href} download={name} aria-label={label} title={label}>
      <Download size={14} aria-hidden="true" />
    </a>
  );
}
