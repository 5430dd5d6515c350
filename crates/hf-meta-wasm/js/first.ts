export { default as first } from "../build/first.wasm.xz";
