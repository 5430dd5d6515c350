export { default as second } from "../build/second.wasm.xz";
export { default as tables } from "../build/tables.txt.xz";
export { tensorsOf } from "./tensors.js";
