//! The instances of a host: who may have one, who waits, and who is refused as busy.
//!
//! A call waits in the queue of its project, within its deadline. Of the projects whose calls wait, the one that has the
//! fewest instances for its weight is next, those of calls that scripts have made counted. In a project, a call that a
//! script has made comes before the others: it has an instance above it that is freed no sooner. One instance for each
//! level of nesting is held back, which only a call of that level can take. So the deepest calls can always continue, and
//! calls that wait for calls within them never wait for each other.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

pub use super::busy::{Busy, BusyLimit};
use super::quota::Standing;
use crate::engine::NESTING;

/// See the module.
#[derive(Debug)]
pub(crate) struct Admission {
    instances: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Instances that any call may take.
    free: u32,
    /// Whether the one that is held back for calls at each depth, from 1, is free.
    held_back: Vec<bool>,
    arrivals: u64,
    projects: HashMap<u64, Project>,
    /// How long calls have taken lately.
    lately: Duration,
}

#[derive(Debug, Default)]
struct Project {
    /// Calls that no script has made, and run.
    running: u32,
    /// Calls that scripts have made, and run.
    nested: u32,
    /// Calls that no script has made, and wait.
    queue: VecDeque<Waiting>,
    /// Calls that scripts have made, and wait.
    nested_queue: VecDeque<Waiting>,
    weight: u32,
    concurrent: u32,
    /// Instances that it may have, without those that are held back.
    instances: u32,
    /// How many of those that are held back it has.
    held_back: u32,
}

#[derive(Debug)]
struct Waiting {
    arrival: u64,
    depth: u32,
    admit: oneshot::Sender<Room>,
}

/// An instance that a call may make; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    admission: Arc<Admission>,
    project: u64,
    kind: Kind,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of a call that no script has made.
    Outermost,
    Nested,
    HeldBack(u32),
}

impl Admission {
    /// Room for this many instances, and for one more of each level of nesting.
    pub(crate) fn new(instances: u32) -> Arc<Self> {
        let state = State {
            free: instances,
            held_back: vec![true; NESTING as usize],
            arrivals: 0,
            projects: HashMap::new(),
            lately: Duration::from_millis(1),
        };
        Arc::new(Self { instances, state: Mutex::new(state) })
    }

    /// Waits for an instance, until then at most.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(crate) async fn enter(self: &Arc<Self>, standing: &Standing, deadline: Instant) -> Result<Room, Busy> {
        let (mut admitted, arrival) = match self.ask(standing) {
            Asked::Admitted(room) => return Ok(room),
            Asked::Refused(busy) => return Err(busy),
            Asked::Waits(admitted, arrival) => (admitted, arrival),
        };
        let _waits = Waits { admission: self, project: standing.share.id(), depth: standing.depth, arrival };
        let began = Instant::now();
        let entered = tokio::time::timeout_at(deadline.into(), &mut admitted).await;
        standing.share.queue().note(began.elapsed());
        match entered {
            Ok(Ok(room)) => Ok(room),
            // It may have come just now.
            Ok(Err(_)) | Err(_) => admitted.try_recv().map_err(|_| self.late(standing, began.elapsed())),
        }
    }

    fn ask(self: &Arc<Self>, standing: &Standing) -> Asked {
        let mut state = self.state();
        let (depth, quota) = (standing.depth, standing.share.quota());
        let arrival = state.arrivals;
        state.arrivals += 1;
        let free = state.free > 0;
        let id = standing.share.id();
        let project = state.projects.entry(id).or_default();
        (project.weight, project.concurrent) = (quota.weight, quota.concurrent_calls.max(1));
        project.instances = quota.instances.max(1);
        if depth > 0 {
            if let Some(kind) = state.room_within(id, depth) {
                return Asked::Admitted(self.room(id, kind));
            }
            let (admit, admitted) = oneshot::channel();
            let waiting = Waiting { arrival, depth, admit };
            state.projects.entry(id).or_default().nested_queue.push_back(waiting);
            return Asked::Waits(admitted, arrival);
        }
        if free && project.queue.is_empty() && project.may_begin() {
            project.running += 1;
            state.free -= 1;
            return Asked::Admitted(self.room(id, Kind::Outermost));
        }
        if project.queue.len() >= quota.queued_calls as usize {
            let queued = u64::from(quota.queued_calls);
            let retry_ms = state.retry(queued, quota.concurrent_calls.min(self.instances));
            state.forget(id);
            return Asked::Refused(Busy { limit: BusyLimit::QueuedCalls, allowed: queued, waited_ms: None, retry_ms });
        }
        let (admit, admitted) = oneshot::channel();
        project.queue.push_back(Waiting { arrival, depth, admit });
        Asked::Waits(admitted, arrival)
    }

    /// Why a call got no instance until its deadline.
    fn late(&self, standing: &Standing, waited: Duration) -> Busy {
        let quota = standing.share.quota();
        let state = self.state();
        let project = state.projects.get(&standing.share.id());
        let full = project.is_some_and(|project| project.running >= project.concurrent);
        let (limit, allowed) = if standing.depth == 0 && full && quota.concurrent_calls < self.instances {
            (BusyLimit::ConcurrentCalls, quota.concurrent_calls)
        } else if project.is_some_and(|project| !project.has_room()) {
            (BusyLimit::ProjectInstances, quota.instances)
        } else {
            (BusyLimit::Instances, self.instances)
        };
        let waited_ms = Some(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        Busy { limit, allowed: u64::from(allowed), waited_ms, retry_ms: state.retry(1, 1) }
    }

    /// The refusal of a call whose project has no memory left.
    pub(crate) fn out_of_memory(&self, standing: &Standing) -> Busy {
        let retry_ms = self.state().retry(1, 1);
        let allowed = standing.share.quota().memory_bytes;
        Busy { limit: BusyLimit::MemoryBytes, allowed, waited_ms: None, retry_ms }
    }

    fn room(self: &Arc<Self>, project: u64, kind: Kind) -> Room {
        Room { admission: self.clone(), project, kind, since: Instant::now() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives free instances to those who wait.
    fn admit(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut admitted = Vec::new();
        while let Some((project, kind, waiting)) = state.next() {
            admitted.push((self.room(project, kind), waiting));
        }
        drop(state);
        for (room, waiting) in admitted {
            // One that waits no more drops it, and so it comes back here.
            let _ = waiting.admit.send(room);
        }
    }
}

/// What became of a call that asked.
enum Asked {
    Admitted(Room),
    Waits(oneshot::Receiver<Room>, u64),
    Refused(Busy),
}

impl State {
    /// An instance for a call of a project at this depth, which a script has made.
    fn room_within(&mut self, id: u64, depth: u32) -> Option<Kind> {
        let project = self.projects.entry(id).or_default();
        if self.free > 0 && project.has_room() {
            self.free -= 1;
            project.nested += 1;
            return Some(Kind::Nested);
        }
        if !std::mem::take(self.held_back.get_mut(depth as usize - 1)?) {
            return None;
        }
        project.nested += 1;
        project.held_back += 1;
        Some(Kind::HeldBack(depth))
    }

    /// Who is next, and what they get.
    fn next(&mut self) -> Option<(u64, Kind, Waiting)> {
        if self.free == 0 {
            return self.next_held_back();
        }
        let first = self.first(|project| {
            let nested = project.nested_queue.front().filter(|_| project.has_room());
            nested.or_else(|| project.queue.front().filter(|_| project.may_begin()))
        });
        // Nested calls of a project that has all of its instances.
        let Some(id) = first else { return self.next_held_back() };
        let project = self.projects.get_mut(&id)?;
        if let Some(waiting) = project.nested_queue.pop_front() {
            return Some((id, self.room_within(id, waiting.depth)?, waiting));
        }
        let waiting = project.queue.pop_front()?;
        project.running += 1;
        self.free -= 1;
        Some((id, Kind::Outermost, waiting))
    }

    /// Who gets an instance that is held back.
    fn next_held_back(&mut self) -> Option<(u64, Kind, Waiting)> {
        let held_back = self.held_back.clone();
        let fits = |waiting: &&Waiting| held_back.get(waiting.depth as usize - 1).is_some_and(|free| *free);
        let id = self.first(|project| project.nested_queue.iter().find(fits))?;
        let queue = &mut self.projects.get_mut(&id)?.nested_queue;
        let at = queue.iter().position(|waiting| fits(&waiting))?;
        let waiting = queue.remove(at)?;
        Some((id, self.room_within(id, waiting.depth)?, waiting))
    }

    /// Of the projects of which a call is a candidate, the one that has the fewest instances for its weight.
    fn first(&self, candidate: impl Fn(&Project) -> Option<&Waiting>) -> Option<u64> {
        let load = |project: &Project| {
            u64::from(project.running + project.nested) * 1_000_000 / u64::from(project.weight.max(1))
        };
        let all = self.projects.iter();
        let all = all.filter_map(|(id, project)| Some((load(project), candidate(project)?.arrival, *id)));
        all.min().map(|(_, _, id)| id)
    }

    /// Milliseconds until so many calls have ended, of which so many run at one time.
    fn retry(&self, calls: u64, at_once: u32) -> u64 {
        let rounds = calls.div_ceil(u64::from(at_once.max(1))).max(1);
        let all = self.lately.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        u64::try_from(all.as_millis()).unwrap_or(u64::MAX).clamp(1, 60_000)
    }

    /// Forgets a project of which nothing runs or waits.
    fn forget(&mut self, id: u64) {
        if self.projects.get(&id).is_some_and(Project::is_idle) {
            self.projects.remove(&id);
        }
    }
}

impl Project {
    /// Whether it may have one more instance.
    fn has_room(&self) -> bool {
        self.running + self.nested - self.held_back < self.instances
    }

    /// Whether one more of the calls that no script has made may begin.
    fn may_begin(&self) -> bool {
        self.running < self.concurrent && self.has_room()
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.nested == 0 && self.queue.is_empty() && self.nested_queue.is_empty()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.admission.state();
        if let Some(project) = state.projects.get_mut(&self.project) {
            let of = if self.kind == Kind::Outermost { &mut project.running } else { &mut project.nested };
            *of = of.saturating_sub(1);
            if matches!(self.kind, Kind::HeldBack(_)) {
                project.held_back = project.held_back.saturating_sub(1);
            }
        }
        state.forget(self.project);
        match self.kind {
            Kind::Outermost => {
                state.free += 1;
                // A moving average: of the last eight or so.
                state.lately = state.lately.saturating_mul(7).saturating_add(self.since.elapsed()) / 8;
            }
            Kind::Nested => state.free += 1,
            Kind::HeldBack(depth) => {
                if let Some(held_back) = state.held_back.get_mut(depth as usize - 1) {
                    *held_back = true;
                }
            }
        }
        self.admission.admit(state);
    }
}

/// A call that waits; takes it out of its queue when it does so no more.
struct Waits<'a> {
    admission: &'a Arc<Admission>,
    project: u64,
    depth: u32,
    arrival: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.state();
        let others = |waiting: &Waiting| waiting.arrival != self.arrival;
        if let Some(project) = state.projects.get_mut(&self.project) {
            let queue = if self.depth > 0 { &mut project.nested_queue } else { &mut project.queue };
            queue.retain(others);
            state.forget(self.project);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::super::quota::{Quota, Share};
    use super::*;

    fn at(share: &Arc<Share>, depth: u32) -> Standing {
        Standing { share: share.clone(), depth }
    }

    fn polled<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    fn is_as_new(admission: &Admission) {
        let state = admission.state();
        assert_eq!(state.free, admission.instances);
        assert!(state.held_back.iter().all(|free| *free));
        assert!(state.projects.is_empty(), "{state:?}");
    }

    #[tokio::test]
    async fn calls_wait_for_an_instance_in_turn() {
        let admission = Admission::new(1);
        let (greedy, other) = (Share::new(Quota::default()), Share::new(Quota::default()));
        let (greedy, other) = (at(&greedy, 0), at(&other, 0));
        let first = admission.enter(&greedy, soon()).await.unwrap();
        let mut second = pin!(admission.enter(&greedy, soon()));
        let mut third = pin!(admission.enter(&other, soon()));
        assert!(polled(second.as_mut()).is_pending() && polled(third.as_mut()).is_pending());
        drop(first);
        let Poll::Ready(Ok(second)) = polled(second) else { panic!("the one that came first is next") };
        assert!(polled(third.as_mut()).is_pending());
        drop(second);
        drop(third.await.unwrap());
        is_as_new(&admission);
    }

    #[tokio::test]
    async fn the_project_with_the_fewest_instances_is_next() {
        let admission = Admission::new(3);
        let shares: Vec<_> = [100, 100].map(|weight| Share::new(Quota::default().weight(weight))).into();
        let (greedy, other) = (at(&shares[0], 0), at(&shares[1], 0));
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(admission.enter(&greedy, soon()).await.unwrap());
        }
        let mut more = pin!(admission.enter(&greedy, soon()));
        let mut others = pin!(admission.enter(&other, soon()));
        assert!(polled(more.as_mut()).is_pending() && polled(others.as_mut()).is_pending());
        held.pop();
        assert!(polled(more.as_mut()).is_pending());
        assert!(polled(others.as_mut()).is_ready());
    }

    #[tokio::test]
    async fn a_longer_queue_than_the_project_may_have_is_refused_as_busy() {
        let admission = Admission::new(4);
        let share = Share::new(Quota::default().concurrent_calls(1).queued_calls(2));
        let standing = at(&share, 0);
        let runs = admission.enter(&standing, soon()).await.unwrap();
        let (mut one, mut two) = (pin!(admission.enter(&standing, soon())), pin!(admission.enter(&standing, soon())));
        assert!(polled(one.as_mut()).is_pending() && polled(two.as_mut()).is_pending());
        let busy = admission.enter(&standing, soon()).await.unwrap_err();
        assert_eq!(
            busy.to_string(),
            "busy: 2 calls of the project are waiting already (`queued_calls`, set by the project's quota); retry in 2 ms"
        );
        // Another project has room.
        drop(admission.enter(&at(&Share::new(Quota::default()), 0), soon()).await.unwrap());
        drop(runs);
        drop((one.await.unwrap(), two));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_until_its_deadline_only() {
        let admission = Admission::new(2);
        let share = Share::new(Quota::default().concurrent_calls(1));
        let standing = at(&share, 0);
        let runs = admission.enter(&standing, soon()).await.unwrap();
        let busy = admission.enter(&standing, Instant::now()).await.unwrap_err();
        assert_eq!((busy.limit, busy.allowed), (BusyLimit::ConcurrentCalls, 1));
        let other = at(&Share::new(Quota::default()), 0);
        let others = admission.enter(&other, soon()).await.unwrap();
        let busy = admission.enter(&other, Instant::now()).await.unwrap_err();
        let text = Busy { waited_ms: Some(5), retry_ms: 7, ..busy }.to_string();
        assert_eq!(
            text,
            "busy: the call waited 5 ms for one of the host's 2 instances (`instances`, set by the host's options); \
             retry in 7 ms"
        );
        drop((runs, others));
        is_as_new(&admission);
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_leaves_its_queue() {
        let admission = Admission::new(1);
        let standing = at(&Share::new(Quota::default()), 0);
        let runs = admission.enter(&standing, soon()).await.unwrap();
        {
            let mut waits = pin!(admission.enter(&standing, soon()));
            assert!(polled(waits.as_mut()).is_pending());
        }
        drop(runs);
        is_as_new(&admission);
        // And so does one that was admitted and had not looked.
        let runs = admission.enter(&standing, soon()).await.unwrap();
        {
            let mut waits = pin!(admission.enter(&standing, soon()));
            assert!(polled(waits.as_mut()).is_pending());
            drop(runs);
        }
        is_as_new(&admission);
    }

    /// Calls that scripts make count for their project: they do not come before those of others that have less.
    #[tokio::test]
    async fn nested_calls_count_for_their_project() {
        let admission = Admission::new(3);
        let (greedy, other) = (Share::new(Quota::default()), Share::new(Quota::default()));
        let (nested, greedy, other) = (at(&greedy, 1), at(&greedy, 0), at(&other, 0));
        let outermost = admission.enter(&greedy, soon()).await.unwrap();
        let first = admission.enter(&nested, soon()).await.unwrap();
        let second = admission.enter(&nested, soon()).await.unwrap();
        // The one that is held back for this depth.
        let third = admission.enter(&nested, soon()).await.unwrap();
        let mut fourth = pin!(admission.enter(&nested, soon()));
        let mut waits = pin!(admission.enter(&greedy, soon()));
        let mut others = pin!(admission.enter(&other, soon()));
        assert!(polled(fourth.as_mut()).is_pending() && polled(waits.as_mut()).is_pending());
        assert!(polled(others.as_mut()).is_pending());
        drop(first);
        let Poll::Ready(Ok(others)) = polled(others.as_mut()) else { panic!("it has none, and the other has four") };
        assert!(polled(fourth.as_mut()).is_pending());
        // In its project it comes first.
        drop(second);
        let Poll::Ready(Ok(fourth)) = polled(fourth.as_mut()) else { panic!("it comes before the outermost ones") };
        assert!(polled(waits.as_mut()).is_pending());
        drop((outermost, others));
        let Poll::Ready(Ok(waits)) = polled(waits.as_mut()) else { panic!("nobody else waits") };
        drop((third, fourth, waits));
        is_as_new(&admission);
    }

    /// Background tasks and other nested calls of one project leave the others their instances, and come to their end.
    #[tokio::test]
    async fn a_project_has_so_many_instances() {
        let admission = Admission::new(8);
        let (greedy, other) = (Share::new(Quota::default().instances(2)), Share::new(Quota::default()));
        let (outermost, nested) = (at(&greedy, 0), at(&greedy, 1));
        let first = admission.enter(&outermost, soon()).await.unwrap();
        let second = admission.enter(&nested, soon()).await.unwrap();
        // The one that is held back for this depth.
        let third = admission.enter(&nested, soon()).await.unwrap();
        let mut fourth = pin!(admission.enter(&nested, soon()));
        let mut fifth = pin!(admission.enter(&outermost, soon()));
        assert!(polled(fourth.as_mut()).is_pending() && polled(fifth.as_mut()).is_pending());
        let mut others = Vec::new();
        for _ in 0..6 {
            others.push(admission.enter(&at(&other, 0), soon()).await.unwrap());
        }
        drop(third);
        let Poll::Ready(Ok(fourth)) = polled(fourth.as_mut()) else { panic!("the one that is held back is free") };
        assert!(polled(fifth.as_mut()).is_pending());
        drop(second);
        let Poll::Ready(Ok(fifth)) = polled(fifth.as_mut()) else { panic!("the project has room again") };
        drop((first, fourth, fifth, others));
        is_as_new(&admission);
    }

    /// As many chains as there are instances, each of which needs another instance at each level: all end.
    #[tokio::test]
    async fn chains_do_not_wait_for_each_other() {
        async fn chain(admission: Arc<Admission>, share: Arc<Share>, depth: u32) {
            let room = admission.enter(&at(&share, depth), soon()).await.unwrap();
            tokio::task::yield_now().await;
            if depth < NESTING {
                // Two at each level, one after the other and side by side.
                let below = || Box::pin(chain(admission.clone(), share.clone(), depth + 1));
                if depth.is_multiple_of(3) {
                    tokio::join!(below(), below());
                } else {
                    below().await;
                }
            }
            drop(room);
        }
        for instances in [1, 2, 5] {
            let admission = Admission::new(instances);
            let share = Share::new(Quota::default());
            let mut chains = tokio::task::JoinSet::new();
            for _ in 0..20 {
                chains.spawn(chain(admission.clone(), share.clone(), 0));
            }
            chains.join_all().await;
            is_as_new(&admission);
        }
    }
}
