//! Egress: the bytes that leave the machine for a tenant, counted as they are sent and bounded by its budgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use harness_capability::outbound::{Admission, Meter, Outbound};
use harness_policy::refusal::Refusal;

use crate::budget::{Ledger, Refused, Resource};
use crate::problem::Problem;
use crate::tenants::now;

/// What all tenants have sent since the start, in bytes.
#[derive(Debug, Default)]
pub struct Sent(AtomicU64);

impl Sent {
    /// How much that is.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The meter of a tenant.
#[derive(Debug)]
pub(crate) struct Egress {
    pub(crate) ledger: Arc<Ledger>,
    /// What is sent for all tenants.
    pub(crate) sent: Arc<Sent>,
    /// Who sets the budgets, for messages.
    pub(crate) set_by: String,
}

impl Egress {
    /// What its projects and models count by.
    pub(crate) fn outbound(self) -> Outbound {
        Outbound::new(Arc::new(self))
    }
}

impl Meter for Egress {
    fn admit(&self) -> Admission<'_> {
        Box::pin(async {
            let admitted = self.ledger.admit_of(now(), |of| of == Resource::Egress).await;
            admitted.map_err(|refused| match &refused {
                Refused::Exceeded(exceeded) => {
                    Refusal::new(exceeded.in_full(&self.set_by), "wait until then, or ask the operator for more egress")
                }
                Refused::Store(_) => Refusal::always(Problem::refused(&refused, now()).detail()),
            })
        })
    }

    fn sent(&self, bytes: u64) {
        self.ledger.spend(now(), Resource::Egress, bytes);
        self.sent.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_bounded(&self) -> bool {
        self.ledger.bounds(Resource::Egress)
    }
}
