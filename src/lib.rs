//! x
pub mod safetensors;
pub use safetensors::{
    Dtype, ParameterCount, SafetensorsFileHeader, SafetensorsIndexJson, TensorInfo,
};
