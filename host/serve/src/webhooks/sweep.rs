//! The removal of deliveries that have ended, and of secrets that sign no more.

use harness_store::{Expected, StoreError};

use super::{BUCKET, DELIVERIES, Delivery, DeliveryState, PAGE, SECRETS, Webhook};
use crate::server::Server;
use crate::tenants::now;

/// How long a delivery is kept after it was made, in milliseconds: three days.
const KEPT: u64 = 3 * 86_400_000;

/// Removes what is kept no longer.
///
/// # Errors
///
/// What the store says. What is left is removed the next time.
pub(crate) async fn sweep(server: &Server) -> Result<(), StoreError> {
    let store = &*server.tenants.store;
    let mut after: Option<String> = None;
    loop {
        let page = store.list(DELIVERIES, "", after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        for (key, found) in &page {
            let Ok(one) = serde_json::from_slice::<Delivery>(&found.value) else { continue };
            if one.state != DeliveryState::Waiting && one.created.saturating_add(KEPT) <= now() {
                let gone = store.delete(DELIVERIES, key, Expected::Version(found.version)).await;
                if !matches!(gone, Ok(()) | Err(StoreError::Conflict { .. })) {
                    return gone;
                }
            }
        }
    }
    let mut after: Option<String> = None;
    loop {
        let page = store.list(BUCKET, "", after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (key, found) in &page {
            let Ok(one) = serde_json::from_slice::<Webhook>(&found.value) else { continue };
            if one.previous_until.is_some_and(|until| until <= now()) {
                store.delete(SECRETS, &format!("{key}/previous"), Expected::Anything).await?;
            }
        }
    }
}
