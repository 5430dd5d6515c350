//! Weights in formats other than safetensors.

use super::ListedFile;
use crate::formats::RepoPath;

/// Weights in a format that was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsupportedWeights {
    /// The name of the format with its file extension, such as `GGUF (.gguf)`.
    pub format: &'static str,
    /// The number of files in this format.
    pub files: usize,
}

/// Formats by file extension.
const EXTENSIONS: [(&str, &str); 15] = [
    ("bin", "PyTorch (.bin)"),
    ("pt", "PyTorch (.pt)"),
    ("pth", "PyTorch (.pth)"),
    ("ckpt", "PyTorch (.ckpt)"),
    ("gguf", "GGUF (.gguf)"),
    ("ggml", "GGML (.ggml)"),
    ("onnx", "ONNX (.onnx)"),
    ("h5", "TensorFlow (.h5)"),
    ("keras", "Keras (.keras)"),
    ("tflite", "TensorFlow Lite (.tflite)"),
    ("msgpack", "Flax (.msgpack)"),
    ("npz", "NumPy (.npz)"),
    ("nemo", "NeMo (.nemo)"),
    ("mlmodel", "Core ML (.mlmodel)"),
    ("pkl", "pickle (.pkl)"),
];

/// First words in file names of training state, which shares the extensions of weights.
const STATES: [&str; 5] = ["training_args", "optimizer", "scheduler", "scaler", "rng_state"];

/// Counts the files of each format.
pub(super) fn count(files: &[ListedFile]) -> Vec<UnsupportedWeights> {
    let count =
        |format| files.iter().filter(|file| self::format(&file.path) == Some(format)).count();
    let formats = EXTENSIONS.iter().map(|(_, format)| *format).chain([OPENVINO]);
    let counted = formats.map(|format| UnsupportedWeights { format, files: count(format) });
    counted.filter(|weights| weights.files > 0).collect()
}

const OPENVINO: &str = "OpenVINO (.bin)";

/// Returns the format of a file by its extension; `None` for files that are not weights.
fn format(path: &RepoPath) -> Option<&'static str> {
    let name = path.segments().last().unwrap_or_default();
    let (stem, extension) = name.rsplit_once('.')?;
    if STATES.iter().any(|state| stem.starts_with(state)) {
        return None;
    }
    let (_, format) = EXTENSIONS.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known))?;
    Some(if stem.starts_with("openvino_") { OPENVINO } else { format })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_formats_are_counted() {
        let paths = [
            "pytorch_model-00001-of-00002.bin",
            "pytorch_model-00002-of-00002.bin",
            "training_args.bin",
            "checkpoint-5/optimizer.pt",
            "checkpoint-5/rng_state_0.pth",
            "onnx/model.onnx",
            "openvino/openvino_model.bin",
            "x.Q4_K_M.GGUF",
            "model.safetensors",
            "config.json",
            "README",
        ];
        let file = |path: &str| ListedFile { path: path.parse().unwrap(), size: 1 };
        let counted = count(&paths.map(file));
        let counted: Vec<_> = counted.iter().map(|other| (other.format, other.files)).collect();
        let expected = [
            ("PyTorch (.bin)", 2),
            ("GGUF (.gguf)", 1),
            ("ONNX (.onnx)", 1),
            ("OpenVINO (.bin)", 1),
        ];
        assert_eq!(counted, expected);
    }
}
