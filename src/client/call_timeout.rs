//! The timeout of a call.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::base::meter::CallMeter;

/// The minimum interval between checks of a timeout that a wait has extended.
const STEP: Duration = Duration::from_millis(50);

/// The timeout of a call without one. It excludes waits for rate limits.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(360);

/// Runs a call for at most `limit`, not counting the waits that its meter excludes. Returns `None` if the time runs out.
pub(super) async fn within_timeout<T>(
    limit: Duration,
    meter: &CallMeter,
    call: impl Future<Output = T>,
) -> Option<T> {
    let (started, mut call) = (Instant::now(), pin!(call));
    let mut left = limit;
    loop {
        if let Ok(result) = timeout(left, call.as_mut()).await {
            return Some(result);
        }
        left =
            limit.saturating_sub(started.elapsed().saturating_sub(meter.excluded_from_timeout()));
        if left.is_zero() {
            return None;
        }
        left = left.max(STEP);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Runs a call that takes all `waits` concurrently and then works for `own`.
    async fn run(own: Duration, waits: &[Duration]) -> Option<()> {
        let meter = CallMeter::default();
        let waiting = waits.iter().map(async |wait| {
            let _waiting = meter.start_wait();
            sleep(*wait).await;
        });
        let call = async {
            futures::future::join_all(waiting).await;
            sleep(own).await;
        };
        within_timeout(LIMIT, &meter, call).await
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_rate_limits_do_not_count_towards_the_timeout() {
        let (short, long) = (STEP, LIMIT + STEP);
        assert!(run(short, &[]).await.is_some());
        assert!(run(long, &[]).await.is_none());
        assert!(run(short, &[300 * STEP, 600 * LIMIT]).await.is_some());
        assert!(run(long, &[LIMIT, LIMIT, LIMIT]).await.is_none(), "concurrent waits count once");
    }
}
