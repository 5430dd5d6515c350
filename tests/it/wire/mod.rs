//! The requests of a call and the responses to them: redirects, faults, retries, limits of time, TLS, HTTP/2 and log
//! events.
//!
//! Add a test here if it is about bytes between a client and a server: a request too many, a response that is not what
//! was requested, or a secret that leaves the process. A fault of a server is one row of `faults/matrix.md`. The local Hub
//! itself is tested here, too.

mod addresses;
pub(crate) mod faults;
#[cfg(target_os = "linux")]
mod http2;
mod local_hub;
mod requests;
mod resilience;
mod responses;
// Other systems do not read the certificate from the environment.
#[cfg(target_os = "linux")]
mod tls;
pub(crate) mod traces;
