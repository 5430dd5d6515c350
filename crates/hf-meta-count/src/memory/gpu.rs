//! GPUs by name: the memory that their drivers report, and their compute capability.

use std::fmt;
use std::str::FromStr;

use crate::architectures::architecture::{names_of, text_of};

/// The maximum number of GPUs in a set.
pub(super) const MAX_GPUS: u64 = 1_024;
/// The number of known names in the error about an unknown one.
const NEAREST: usize = 3;

/// The maker of a GPU, which decides the software that engines need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GpuVendor {
    /// AMD, with `ROCm`.
    Amd,
    /// Apple, with Metal.
    Apple,
    /// NVIDIA, with CUDA.
    Nvidia,
}

/// A GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Gpu {
    /// The name, such as `H100`.
    pub name: &'static str,
    /// The maker.
    pub vendor: GpuVendor,
    /// The memory in bytes that the driver reports. For Apple, the memory of the computer.
    pub memory: u64,
    /// The compute capability, such as 90 for 9.0; `None` for Apple.
    pub capability: Option<u64>,
}

/// Equal GPUs in one computer, such as `2xH100`.
///
/// ```
/// use hf_meta_count::memory::GpuSet;
///
/// let gpus: GpuSet = "2xH100".parse()?;
/// assert_eq!((gpus.count, gpus.gpu.memory), (2, 85_520_809_984));
/// assert_eq!(gpus.to_string(), "2 × H100");
/// assert_eq!("rtx 4090".parse::<GpuSet>()?.gpu.capability, Some(89));
/// let error = "h1000".parse::<GpuSet>().unwrap_err();
/// assert_eq!(error.to_string(), "no GPU is called `h1000`; the nearest are h100, a100, h200");
/// # Ok::<(), hf_meta_count::memory::UnknownGpu>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GpuSet {
    /// The number of GPUs.
    pub count: u64,
    /// The GPU.
    pub gpu: Gpu,
}

/// The error for a text that is not a [`GpuSet`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownGpu {
    /// The number of GPUs is 0 or too large.
    #[error("expected a number of GPUs from 1 to {MAX_GPUS}, as in 2xH100")]
    Count,
    /// An Apple GPU has the memory of its computer, which the name lacks.
    #[error("the memory of the computer is missing, as in {name}-64gb")]
    NoSize {
        /// The name of the GPU.
        name: String,
    },
    /// The name is unknown.
    #[error("no GPU is called `{name}`; the nearest are {}", nearest.join(", "))]
    Name {
        /// The name, as given.
        name: String,
        /// Similar names.
        nearest: Vec<&'static str>,
    },
}

impl FromStr for GpuSet {
    type Err = UnknownGpu;

    fn from_str(text: &str) -> Result<Self, UnknownGpu> {
        let text = text.trim().to_lowercase();
        let (count, name) = match text.split_once(['x', '×']) {
            // Names such as `rtx4090` have an x, too.
            Some((count, name)) if count.trim().bytes().all(|byte| byte.is_ascii_digit()) => {
                let count =
                    count.trim().parse().ok().filter(|count| (1..=MAX_GPUS).contains(count));
                (count.ok_or(UnknownGpu::Count)?, name)
            }
            _ => (1, &*text),
        };
        Ok(Self { count, gpu: Gpu::find(name.trim())? })
    }
}

impl fmt::Display for GpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.count, self.gpu.name)
    }
}

impl Gpu {
    /// Returns the default of `--max-num-batched-tokens` in `vllm serve`: `get_batch_defaults` in `engine/arg_utils.py` 0.33.0.
    pub(super) fn batched_tokens(self) -> u64 {
        match self.memory >> 30 {
            160.. => 16_384,
            70.. if !self.name.contains("A100") => 8_192,
            _ => 2_048,
        }
    }

    fn find(name: &str) -> Result<Self, UnknownGpu> {
        let wanted = plain(name);
        if let Some(found) = Self::known(&wanted).filter(|gpu| gpu.memory > 0) {
            return Ok(found);
        }
        // Apple's GPUs have the memory of the computer behind their names.
        let (chip, size) = name.rsplit_once(['-', ' ']).unwrap_or((name, ""));
        let apple = |name| Self::known(&plain(name)).filter(|gpu| gpu.vendor == GpuVendor::Apple);
        let gigabytes = size.strip_suffix("gb").unwrap_or(size).parse::<u32>().ok();
        match (apple(chip), gigabytes.filter(|size| *size > 0)) {
            (Some(gpu), Some(size)) => Ok(Self { memory: u64::from(size) << 30, ..gpu }),
            _ if apple(name).is_some() => Err(UnknownGpu::NoSize { name: name.to_owned() }),
            _ => Err(UnknownGpu::Name { name: name.to_owned(), nearest: nearest(&wanted) }),
        }
    }

    /// Returns the GPU with a plain name.
    fn known(wanted: &str) -> Option<Self> {
        let name = names_of("gpu").find(|name| plain(name) == wanted)?;
        let mut words = text_of("gpu", name)?.split(' ');
        let name = words.next()?;
        let [memory, capability] = [words.next()?, words.next()?].map(|word| word.parse().ok());
        let vendor = match words.next() {
            Some("amd") => GpuVendor::Amd,
            Some("apple") => GpuVendor::Apple,
            _ => GpuVendor::Nvidia,
        };
        let memory = memory.map(|mebibytes: u64| mebibytes << 20)?;
        Some(Self { name, vendor, memory, capability: capability.filter(|number| *number > 0) })
    }
}

/// Returns a name without the names of makers and brands, spaces and hyphens.
fn plain(name: &str) -> String {
    const BRANDS: [&str; 6] = ["nvidia", "amd", "apple", "tesla", "geforce", "instinct"];

    let mut name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    while let Some(rest) = BRANDS.iter().find_map(|brand| name.strip_prefix(brand)) {
        name = rest.to_owned();
    }
    name
}

/// Returns the known names that differ from a plain name in the fewest characters.
fn nearest(wanted: &str) -> Vec<&'static str> {
    /// The maximum length of a name to compare. Longer ones are none.
    const MAX_LENGTH: usize = 40;

    if wanted.len() > MAX_LENGTH {
        return Vec::new();
    }
    let mut found = Vec::new();
    while found.len() < NEAREST {
        let names = names_of("gpu").filter(|name| !found.contains(name));
        let nearest = names.min_by_key(|name| (distance(wanted, &plain(name)), name.len(), *name));
        let Some(nearest) = nearest else { break };
        found.push(nearest);
    }
    found
}

/// Returns the number of characters to insert, delete or replace between two names.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, char) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, found) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(char != found);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_gpus_have_many_spellings() {
        let cases = [
            ("H100", 1, "H100"),
            ("2xH100", 2, "H100"),
            ("8 × h100-80gb", 8, "H100"),
            ("NVIDIA GeForce RTX 4090", 1, "RTX4090"),
            ("rtx4090", 1, "RTX4090"),
            ("4x4090", 4, "RTX4090"),
            ("a100_40gb", 1, "A100-40GB"),
            ("NVIDIA H100 80GB HBM3", 1, "H100"),
            ("NVIDIA-A100-SXM4-80GB", 1, "A100"),
            ("NVIDIA A100-PCIE-40GB", 1, "A100-40GB"),
            ("Tesla V100-SXM2-32GB", 1, "V100-32GB"),
            ("NVIDIA GH200 480GB", 1, "GH200"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 1, "RTX-PRO-6000"),
            ("AMD Instinct MI300X", 1, "MI300X"),
            ("m3-max-64gb", 1, "M3-Max"),
            ("Apple M1 16GB", 1, "M1"),
        ];
        for (text, count, name) in cases {
            let gpus: GpuSet = text.parse().unwrap();
            assert_eq!((gpus.count, gpus.gpu.name), (count, name), "{text}");
        }
        assert_eq!("m3-max-64gb".parse::<GpuSet>().unwrap().gpu.memory, 64 << 30);
    }

    #[test]
    fn unknown_gpus_are_errors() {
        let message = |text: &str| text.parse::<GpuSet>().unwrap_err().to_string();
        assert_eq!(message("0xH100"), "expected a number of GPUs from 1 to 1024, as in 2xH100");
        assert_eq!(message("m4-max"), "the memory of the computer is missing, as in m4-max-64gb");
        assert!(message("rtx4095").contains("rtx4090"));
        for text in ["", "x", "99999999999999999999xH100", "-", &"x".repeat(5_000)] {
            assert!(text.parse::<GpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_line_of_the_table_is_complete() {
        for name in names_of("gpu") {
            let gpu = Gpu::known(&plain(name)).unwrap();
            let is_apple = gpu.vendor == GpuVendor::Apple;
            assert_eq!((gpu.memory == 0, gpu.capability.is_none()), (is_apple, is_apple), "{name}");
        }
    }
}
