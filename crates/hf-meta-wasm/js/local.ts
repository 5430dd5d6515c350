import type { Files } from "./core.js";
import { HfMetaError } from "./errors.js";
import type { Part } from "./http.js";
import type { LocalFiles } from "./source.js";

/** Returns files that were read by other means, as the core reads them, and a function that returns what was fetched. */
export function localFiles({ files, name = "files" }: LocalFiles) {
  const read = async (path: string, start: number, end: number): Promise<Part> => {
    const file = files[path];
    if (!file) throw new HfMetaError("fileNotFound", `\`${path}\` not found`);
    if (file instanceof Uint8Array) return { bytes: file.subarray(start, end) };
    return { bytes: new Uint8Array(await file.slice(start, end).arrayBuffer()), size: file.size };
  };
  const reader: Files = { read, load: (path, limit) => read(path, 0, limit) };
  const listed = Object.entries(files).map(([path, file]) => {
    if (file instanceof Uint8Array || file instanceof Blob) return { path, size: file instanceof Blob ? file.size : file.length };
    throw new HfMetaError("invalidOption", `\`${path}\` is neither a \`Uint8Array\` nor a \`Blob\``);
  });
  return { source: name, repo: name, files: listed, reader, fetched: () => ({ requests: 0, bytesRead: 0 }) };
}
