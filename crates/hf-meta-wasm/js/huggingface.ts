// The types of `@huggingface/hub`, so that a program compiles with either package.
import type { CountReport } from "./schema.js";

/** The dtypes that huggingface.js lists. A file may have others. */
export type Dtype =
  | "F64" | "F32" | "C64" | "F16" | "F8_E4M3" | "F8_E4M3FNUZ" | "F8_E5M2" | "F8_E5M2FNUZ" | "F8_E8M0" | "E8M0" | "F6_E3M2"
  | "F6_E2M3" | "F4" | "FP4" | "BF16" | "I64" | "U64" | "I32" | "U32" | "I16" | "I8" | "U16" | "U8" | "UE8" | "BOOL";

export type TensorName = string;

export interface TensorInfo {
  dtype: Dtype;
  shape: number[];
  data_offsets: [number, number];
}

export type SafetensorsFileHeader = Record<TensorName, TensorInfo> & {
  __metadata__?: { total_parameters?: string | number } & Record<string, string>;
};

export interface SafetensorsIndexJson {
  dtype?: string;
  metadata?: { total_parameters?: string | number } & Record<string, string>;
  weight_map?: Record<TensorName, string>;
}

export type SafetensorsShardedHeaders = Record<string, SafetensorsFileHeader>;

/** The counts, unless `computeParametersCount` is not set. */
interface Counts {
  parameterCount?: Partial<Record<Dtype, number>>;
  parameterTotal?: number;
}

/** The result of `parseSafetensorsMetadata`. Fields that huggingface.js does not have are additions. */
export type SafetensorsParseFromRepo = Omit<CountReport, "sharded" | keyof Counts> & Counts
  & ({ sharded: false; header: SafetensorsFileHeader } | { sharded: true; index: SafetensorsIndexJson; headers: SafetensorsShardedHeaders });
