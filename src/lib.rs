//! What is inside safetensors weights.
