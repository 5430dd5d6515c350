/** The elements of a tensor. Types without an array, such as BF16, F16 and F8, are the integers with their bits. */
export type TensorData =
  | Uint8Array<ArrayBuffer> | Int8Array<ArrayBuffer> | Uint16Array<ArrayBuffer> | Int16Array<ArrayBuffer> | Uint32Array<ArrayBuffer>
  | Int32Array<ArrayBuffer> | Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer> | BigUint64Array<ArrayBuffer> | BigInt64Array<ArrayBuffer>;

/** A tensor that was read. */
export interface Tensor {
  name: string;
  dtype: string;
  /** The shape, with the number of selected rows. */
  shape: number[];
  data: TensorData;
}
