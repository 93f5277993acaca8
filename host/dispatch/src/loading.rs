//! Loading a script while a call waits for it.
//!
//! A call waits no longer than its own deadline. The load continues without it, so that the next call finds the script
//! loaded, and all calls that wait for one script wait for the same load.
//!
//! A load pays in fuel. What every script may use is free; more is paid from what the scripts of one source have together.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::images::{Images, over};
use super::loaded::{Unloadable, unloadable};
use super::spans;
use harness_artifact::policy::sources;
use harness_policy::grant::Grant;
use harness_policy::limits::Limits;
use harness_sandbox::engine::{Budget, Image, LOAD_FUEL, LOAD_MEMORY, Sandbox, ScriptError};
use harness_sandbox::outcome::{Failure, FailureKind, Limit, LimitKind, Source};
use tracing::Span;

/// Fuel that loading a script may use whatever its limits say: three times what the largest of the shipped ones takes.
pub(super) const LEAST_FUEL: u64 = 100_000_000;
/// Fuel beyond that which the scripts of one bundle have together, or those that are in none; a second or so.
pub(super) const SOURCE_FUEL: u64 = LOAD_FUEL;
/// Fuel that all loads of a bundle have together, with what every script may use: some eight seconds.
pub(super) const BUNDLE_FUEL: u64 = 2 * LOAD_FUEL;
/// The same of all bundles of a project, so that no number of them holds up a command for long. What is in none is the
/// operator's own, and never pays for what others use.
pub(super) const BUNDLES_FUEL: u64 = 4 * LOAD_FUEL;
/// Time that a load may take whatever the limits say: a machine that is busy must not decide what can be loaded.
pub(super) const LEAST_TIME: Duration = Duration::from_secs(1);

/// The same where no clock says anything: in a replay, which the machine's speed is not to change.
pub(super) const PATIENT_TIME: Duration = Duration::from_secs(600);

/// Until when a call waits for scripts to be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadDeadline {
    pub(crate) at: Instant,
    /// The time that the call had, for messages.
    pub milliseconds: u64,
}

impl LoadDeadline {
    /// Of a call that began then and has this long.
    pub fn new(began: Instant, timeout: Duration) -> Self {
        Self { at: began + timeout, milliseconds: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX) }
    }

    /// The earlier of two.
    pub fn min(self, other: Option<Self>) -> Self {
        other.filter(|other| other.at < self.at).unwrap_or(self)
    }

    /// The limit that it is.
    pub fn limit(self) -> Limit {
        Limit::of(LimitKind::Deadline, self.milliseconds)
    }
}

/// A script that is to be loaded.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) sandbox: Sandbox,
    pub(super) images: Arc<Images>,
    pub(super) source: Source,
    /// The name of the artifact's source.
    pub(super) of: String,
    pub(super) grant: Grant,
    /// The grant's limits, with fuel for telling of lines.
    pub(super) limits: Limits,
    /// How much more everything takes where lines are reported.
    pub(super) times: u64,
    /// Whether its time is the clock's to say.
    pub(super) has_clock: bool,
}

impl Load {
    /// Loads it here and now, and keeps it.
    pub(super) fn now(self) -> Result<Image, Unloadable> {
        let span = spans::image(&self.of);
        let image = span.in_scope(|| self.paid());
        spans::made(&span, &image);
        self.images.keep(self.source, &self.of, image)
    }

    /// The same where it takes no more than every script may; nothing where it does.
    pub(super) fn if_little(self) -> Option<Result<Image, Unloadable>> {
        let span = spans::image(&self.of);
        let image = span.in_scope(|| match self.beyond_the_bundles() {
            Some(over) => Some(Err(over)),
            None => Some(self.free().0?.map_err(|error| unloadable(error, &self.source.file, &self.grant))),
        })?;
        spans::made(&span, &image);
        Some(self.images.keep(self.source, &self.of, image))
    }

    /// Lets it be loaded on another thread. Gives back the same to all who wait for it.
    pub(super) async fn concurrent(self) -> Result<Image, Unloadable> {
        let (images, sandbox, source) = (self.images.clone(), self.sandbox.clone(), self.source.clone());
        let caller = Span::current();
        images.once(source, async move { sandbox.in_turn(move || caller.in_scope(|| self.now())).await }).await
    }

    /// What it may use by itself, from now on.
    fn budget(&self) -> Budget {
        let timeout = self.limits.timeout.max(if self.has_clock { LEAST_TIME } else { PATIENT_TIME });
        Budget {
            fuel: self.limits.fuel.clamp(self.least(), self.scaled(LOAD_FUEL)),
            memory: self.limits.memory_bytes.min(LOAD_MEMORY),
            deadline: Some(Instant::now() + timeout),
            milliseconds: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn scaled(&self, fuel: u64) -> u64 {
        fuel.saturating_mul(self.times)
    }

    fn least(&self) -> u64 {
        self.scaled(LEAST_FUEL)
    }

    /// Loads it with what every script may use. Nothing where that is too little and it may have more.
    fn free(&self) -> (Option<Result<Image, ScriptError>>, Budget) {
        let budget = self.budget();
        let (image, used) = self.sandbox.load_within(&self.source, Budget { fuel: self.least(), ..budget });
        self.count(&image, used);
        let too_little = matches!(&image, Err(ScriptError::Over(limit)) if limit.kind == LimitKind::Fuel);
        ((!too_little || budget.fuel <= self.least()).then_some(image), budget)
    }

    /// Counts what a load took, unless it was late: how busy the machine is says nothing of the script.
    fn count(&self, image: &Result<Image, ScriptError>, used: u64) -> bool {
        let late = matches!(image, Err(ScriptError::Over(limit)) if limit.kind == LimitKind::Deadline);
        if let (false, Some(bundle)) = (late, sources::bundle_of(&self.of)) {
            self.images.count(bundle, used);
        }
        !late
    }

    /// What is said where the loads of a bundle, or those of all bundles, have taken all that they have together.
    fn beyond_the_bundles(&self) -> Option<Unloadable> {
        let bundle = sources::bundle_of(&self.of)?;
        let (own, all) = self.images.taken(bundle);
        let why = |most| format!("take more than {most} units of fuel together to load: remove some of them");
        if own > BUNDLE_FUEL {
            return Some(over(&self.source, Some(bundle), &why(BUNDLE_FUEL)));
        }
        (all > BUNDLES_FUEL).then(|| {
            let what = format!("the scripts of all bundles {}", why(BUNDLES_FUEL));
            Unloadable::Script(Failure::without_place(FailureKind::Script, &self.source.file, what))
        })
    }

    fn paid(&self) -> Result<Image, Unloadable> {
        if let Some(over) = self.beyond_the_bundles() {
            return Err(over);
        }
        let told = |error| unloadable(error, &self.source.file, &self.grant);
        if let (Some(image), _) = self.free() {
            return image.map_err(told);
        }
        let bundle = sources::bundle_of(&self.of);
        let spent = self.images.spent(bundle);
        // One after the other: what one leaves is what the next one has, whichever is the faster.
        let mut spent = spent.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = self.budget();
        // No more where lines are reported: the time of loading is bounded, and not the script's work alone.
        let fuel = budget.fuel.min(self.least().saturating_add(SOURCE_FUEL.saturating_sub(*spent)));
        let (image, used) = self.sandbox.load_within(&self.source, Budget { fuel, ..budget });
        if self.count(&image, used) {
            *spent = spent.saturating_add(used.saturating_sub(self.least()));
        }
        match image {
            Err(ScriptError::Over(limit)) if limit.kind == LimitKind::Fuel && fuel < budget.fuel => {
                let what =
                    format!("take more than {SOURCE_FUEL} units of fuel together to load: move work into functions");
                Err(over(&self.source, bundle, &what))
            }
            image => image.map_err(told),
        }
    }
}
