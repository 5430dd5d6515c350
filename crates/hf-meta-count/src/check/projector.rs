//! Projectors of images in GGUF files.

use hf_meta_format::formats::{Headers, all_tensors};

/// Returns the width of the output of a projector; `None` for another file, or a type without a rule. Source:
/// `clip_n_mmproj_embd` in `tools/mtmd/clip.cpp` of llama.cpp 0.6.0. GGUF lists the sides of a matrix in reverse order.
pub fn projector_width(headers: &Headers) -> Option<u64> {
    let metadata = headers.first()?.1.metadata()?;
    let kind = ["clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type"];
    let kind = kind.iter().find_map(|key| metadata.get(*key))?;
    let (name, is_input) = match kind.as_str() {
        "mlp" | "phi4" | "pixtral" | "lightonocr" | "qwen2vl_merger" | "qwen2.5vl_merger"
        | "qwen3vl_merger" | "kimivl" | "lfm2" | "kimik25" => ("mm.2.weight", false),
        "gemma3" => ("mm.input_projection.weight", true),
        "idefics3" | "llama4" => ("mm.model.fc.weight", false),
        "internvl" => ("mm.model.mlp.3.weight", false),
        _ => return None,
    };
    let (_, tensor) = all_tensors(headers).find(|(found, _)| *found == name)?;
    if is_input { tensor.shape.last().copied() } else { tensor.shape.first().copied() }
}
