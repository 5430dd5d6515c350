declare module "*.xz" {
  const packed: Uint8Array<ArrayBuffer>;
  export default packed;
}
