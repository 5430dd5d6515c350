declare module "*.wasm.gz" {
  const bytes: Uint8Array;
  export default bytes;
}
