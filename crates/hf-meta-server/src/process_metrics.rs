//! Metrics of the process, from `/proc`, under the names that Prometheus clients use. Other systems have only the start time.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The number of clock ticks per second in `/proc/self/stat`. Linux reports 100 to programs on every platform, whatever the
/// kernel uses (`man 7 time`).
const TICKS_PER_SECOND: f64 = 100.0;

/// The metrics of this process.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    /// Unix time in seconds.
    started: f64,
}

impl ProcessMetrics {
    pub(super) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: now.as_secs_f64() }
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let start = "Unix time at which the process was started in seconds";
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("process_start_time_seconds", start, self.started)?;
        if let Some(bytes) = resident_bytes() {
            gauge("process_resident_memory_bytes", "Resident memory size in bytes", bytes)?;
        }
        let files = fs::read_dir("/proc/self/fd").map(Iterator::count).map(u32::try_from);
        if let Ok(Ok(files)) = files {
            gauge("process_open_fds", "Number of open file descriptors", files.into())?;
        }
        if let Some(seconds) = cpu_seconds() {
            let (counter, help) = (ConstCounter::new(seconds), "Total CPU time in seconds");
            let name = "process_cpu_seconds";
            counter.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

/// Returns the memory of the process in bytes.
fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kilobytes.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

/// Returns the CPU time of all threads in seconds.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain spaces. The fields after it begin with the third one.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<f64>);
    Some((ticks.next()?.ok()? + ticks.next()?.ok()?) / TICKS_PER_SECOND)
}
