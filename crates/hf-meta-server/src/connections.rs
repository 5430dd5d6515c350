//! Limits open connections per client, and in total by the limit of open files.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;

/// The number of open files besides client connections: connections to the Hub, and cache files.
const OTHER_FILES: usize = 128;

/// Counts open connections, in total and per client.
#[derive(Debug)]
pub(super) struct ClientConnections {
    limit: usize,
    /// The number of all open connections.
    all: Gauge,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A guard for an open connection, which is counted until it is dropped.
#[derive(Debug)]
pub(super) struct ClientConnection {
    connections: Arc<ClientConnections>,
    /// `None` for a connection without a limit.
    client: Option<IpAddr>,
}

impl ClientConnections {
    pub(super) fn new(limit: usize, all: Gauge) -> Arc<Self> {
        Arc::new(Self { limit, all, open: Mutex::default() })
    }

    /// Counts a connection. Returns `None` if its client has reached the limit. Connections without a client are not
    /// limited.
    pub(super) fn open(self: &Arc<Self>, client: Option<IpAddr>) -> Option<ClientConnection> {
        if let Some(client) = client {
            let mut open = self.lock();
            let count = open.entry(client).or_default();
            if *count >= self.limit {
                return None;
            }
            *count += 1;
        }
        self.all.inc();
        Some(ClientConnection { connections: Arc::clone(self), client })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.connections.all.dec();
        let Some(client) = self.client else { return };
        let mut open = self.connections.lock();
        if let Some(count) = open.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&client);
            }
        }
    }
}

/// Returns the number of connections for which the process may open enough files. Logs a warning if it is less than
/// configured.
pub(super) fn clamp_to_open_files(configured: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let possible = clamped(configured, &limits);
    if possible < configured {
        tracing::warn!(
            configured,
            possible,
            "accepting fewer connections, because the limit on open files is too low"
        );
    }
    possible
}

/// Returns the number of connections, given the text of `/proc/self/limits`.
fn clamped(configured: usize, limits: &str) -> usize {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    let possible = soft.map_or(usize::MAX, |soft| soft.saturating_sub(OTHER_FILES).max(soft / 2));
    configured.min(possible).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_limit_of_connections() {
        let all = Gauge::default();
        let connections = ClientConnections::new(2, all.clone());
        let [one, other] = [1, 2].map(|last| Some(IpAddr::from([10, 0, 0, last])));
        let first = connections.open(one).unwrap();
        let _second = connections.open(one).unwrap();
        assert!(connections.open(one).is_none() && connections.open(other).is_some());
        assert!((0..5).all(|_| connections.open(None).is_some()));
        drop(first);
        assert!(connections.open(one).is_some());
        assert_eq!(connections.lock().len(), 1, "only clients with connections are in the table");
        assert_eq!(all.get(), 1, "only `_second` is open");
    }

    #[test]
    fn connections_leave_room_for_other_files() {
        let limits = |soft| {
            format!("Max processes 1 1 x\nMax open files            {soft}     4096  files\n")
        };
        assert_eq!(clamped(10_000, &limits("1024")), 896);
        assert_eq!(clamped(10_000, &limits("100")), 50);
        assert_eq!(clamped(10_000, &limits("32768")), 10_000);
        assert_eq!(clamped(10_000, &limits("unlimited")), 10_000);
        assert_eq!(clamped(0, ""), 1);
    }
}
