//! The removal of what the audit logs of tenants keep no longer.

use std::time::Duration;

use harness_audit::{Broken, FOLDER, Retention, Trimmed, trim};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::server::Server;

/// How old the first line of a file is when that is closed, so that files are removed that hold a day each.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Removes what the class of each tenant keeps no longer. A log that is broken stays as it is: who reads it hears what is wrong.
pub(crate) async fn sweep(server: &Server) {
    for tenant in server.tenants.all() {
        let Some(kept) = tenant.class.retention.audit else { continue };
        let folder = tenant.project_folder().join(FOLDER);
        let trimmed = tokio::task::spawn_blocking(move || trimmed(&folder, Duration::from_millis(kept))).await;
        drop(trimmed);
    }
}

fn trimmed(folder: &std::path::Path, kept: Duration) -> Result<Trimmed, Broken> {
    let now = harness_sys::since_epoch();
    let text = (OffsetDateTime::UNIX_EPOCH + now).format(&Rfc3339).unwrap_or_default();
    let (before, due) = (now.saturating_sub(kept), now.saturating_sub(DAY));
    trim(folder, &Retention { time_of: &time_of, before, due, now: &text })
}

/// When a line was written.
fn time_of(line: &str) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Line {
        time: String,
    }
    let Line { time } = serde_json::from_str(line).ok()?;
    let since = OffsetDateTime::parse(&time, &Rfc3339).ok()? - OffsetDateTime::UNIX_EPOCH;
    since.try_into().ok()
}
