//! What a record says of everything that is not decided again: what host calls answered, what was seen of tasks, what
//! people said, and whose time was over.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::read::Recording;
use crate::record::{Line, ROOT, ScriptRan, Task, What};
use crate::recorder::Recorder;
use harness_dispatch::confirm::{Answer, Confirmer, Question};
use harness_dispatch::past::{Began, LoadEnd, Past, Refused, Seen, Went};
use harness_dispatch::{Added, Looked, Saw};
use harness_sandbox::strand;
use harness_sandbox::tape::{Given, Late, LatePoint, Ran, Script, Tape};

/// For how long tasks are waited for that go another way now, and may does not end.
const MAX_SETTLING: Duration = Duration::from_secs(600);

/// A record, for a run that does the same again.
#[derive(Debug)]
pub(super) struct Rewound {
    recorder: Arc<Recorder>,
    /// Those that were not given yet.
    left: Mutex<Left>,
    /// How tasks began, by the names of their strands.
    began: HashMap<String, Began>,
    /// Strands in which someone stopped waiting for something.
    cut: HashSet<String>,
    /// Tasks whose time was over, and what they had of it.
    late_tasks: HashMap<String, u64>,
    late_delegations: HashSet<String>,
    /// What strands saw of what was added to the run, by look.
    saw: HashMap<Look, Saw>,
    /// The strand and turn of the root in which each addition was made. None in a record of before they were kept.
    adders: HashMap<u64, (String, u64)>,
    /// Told whenever a task is over, a turn of the root begins or the run is added to.
    changed: Notify,
}

/// What is given once.
#[derive(Debug, Default)]
struct Left {
    scripts: HashMap<Key, VecDeque<ScriptRan>>,
    /// By strand.
    looked: HashMap<String, VecDeque<Looked>>,
    /// By strand and tool.
    answers: HashMap<(String, String), VecDeque<Answer>>,
    /// By agent at work.
    turns: HashMap<String, VecDeque<Turned>>,
    /// What turns of the root had shown that have no answer, by their numbers.
    unfinished: HashMap<u64, String>,
    /// Tasks that are in progress now, with their strands.
    open: HashMap<String, String>,
    /// Strands of those that are over.
    over: HashSet<String>,
    /// Turns of the root that have begun.
    turns_begun: u64,
    /// What was added to the run, as it was after each addition.
    states: HashMap<u64, Arc<Added>>,
}

/// Strand, turn of the root, and how often that strand has looked: outside of tasks, in that turn.
type Look = (String, u64, u64);

/// How a turn ended.
#[derive(Debug, Default)]
struct Turned {
    late: bool,
    refused: Option<Refused>,
}

/// Strand, file, role and input of a script.
type Key = (String, String, String, String);

fn key(strand: String, script: &Script) -> Key {
    (strand, script.file.clone(), script.role.clone(), script.input.clone())
}

/// The time that a script had, of the sentence that says that it was over.
fn milliseconds(result: &str) -> Option<u64> {
    let (_, rest) = result.split_once("`timeout_ms` of ")?;
    rest.split(' ').next()?.parse().ok()
}

impl Left {
    /// A look in the turn of now. Those of a task are counted from its beginning.
    fn look(&self, strand: String, look: u64) -> Look {
        let turn = if strand.is_empty() { self.turns_begun } else { 0 };
        (strand, turn, look)
    }

    /// Keeps what the turn of now had shown without an answer, where it is the root's.
    fn keep_unfinished(&mut self, by: &str, said: Option<&String>) {
        if by == ROOT {
            self.unfinished.extend(said.map(|said| (self.turns_begun, said.clone())));
        }
    }

    /// Whether a strand has ended, or is past a turn of the root in which it did something.
    fn is_over(&self, strand: &str, turn: u64) -> bool {
        if strand.is_empty() {
            return turn < self.turns_begun;
        }
        let parent = strand.rsplit_once('.').map_or("", |(parent, _)| parent);
        let open = self.open.values().any(|open| open == strand);
        self.over.contains(strand) || (!open && self.is_over(parent, turn))
    }
}

impl Rewound {
    pub(super) fn new(recording: &Recording, recorder: Arc<Recorder>) -> Self {
        let mut rewound = Self {
            recorder,
            left: Mutex::default(),
            began: HashMap::new(),
            cut: HashSet::new(),
            late_tasks: HashMap::new(),
            late_delegations: HashSet::new(),
            saw: HashMap::new(),
            adders: HashMap::new(),
            changed: Notify::new(),
        };
        let mut left = Left::default();
        recording.lines.iter().for_each(|line| rewound.take(line, &mut left));
        if !recording.is_ended() {
            // The process was ended: in all of them.
            rewound.cut.extend(recording.lines.iter().map(|line| line.strand.clone()));
            rewound.cut.extend(rewound.began.keys().cloned());
        }
        left.turns_begun = 0;
        left.states.insert(0, Arc::default());
        rewound.left = Mutex::new(left);
        rewound
    }

    fn take(&mut self, line: &Line, left: &mut Left) {
        let strand = line.strand.clone();
        match &line.what {
            What::Script(ran) => {
                if ran.outcome == "abandoned" {
                    self.cut.insert(strand.clone());
                }
                left.scripts.entry(key(strand, &ran.script)).or_default().push_back(ran.clone());
            }
            What::Looked(looked) => {
                let (asked, ended, news, missing) = (&looked.asked, &looked.ended, &looked.news, &looked.missing);
                left.looked.entry(strand).or_default().push_back(Looked {
                    asked: asked.clone(),
                    ended: ended.clone(),
                    news: news.clone(),
                    missing: missing.clone(),
                });
            }
            What::Confirmation(said) => {
                let all = [Answer::Yes, Answer::No, Answer::Nobody];
                let answer = all.into_iter().find(|answer| answer.name() == said.answer).unwrap_or(Answer::Nobody);
                left.answers.entry((strand, said.tool.clone())).or_default().push_back(answer);
            }
            What::Task(task) => self.take_task(strand, task),
            What::Returned(returned) if returned.late => {
                self.late_delegations.insert(returned.id.clone());
                self.cut.insert(strand);
            }
            What::Turned(turned) => {
                left.keep_unfinished(&line.by, turned.said.as_ref());
                let went = Turned { late: turned.late, refused: turned.refused.clone() };
                left.turns.entry(line.by.clone()).or_default().push_back(went);
                if turned.late {
                    self.cut.insert(strand);
                }
            }
            What::Turn(_) | What::Continued(_) if line.by == ROOT => {
                left.turns_begun = left.turns_begun.saturating_add(1)
            }
            What::Saw(saw) => {
                if saw.adds.is_some() {
                    self.adders.insert(saw.additions.saturating_add(1), (strand.clone(), left.turns_begun));
                }
                self.saw.insert(left.look(strand, saw.look), saw.clone());
            }
            What::Stopped { said } => {
                left.keep_unfinished(&line.by, said.as_ref());
                left.turns.entry(line.by.clone()).or_default().push_back(Turned::default());
                self.cut.insert(strand);
            }
            _ => {}
        }
    }

    /// A task has begun in a strand of its own, or could not; or has ended in that.
    fn take_task(&mut self, strand: String, task: &Task) {
        match task {
            Task { opens: Some(opens), task, why, .. } => {
                let began = match (task, why) {
                    (Some(task), _) => Began::As(task.clone()),
                    (None, why) => Began::Refused(why.clone().unwrap_or_default()),
                };
                self.began.insert(opens.clone(), began);
            }
            Task { task: Some(task), late: Some(late), .. } => {
                self.late_tasks.insert(task.clone(), *late);
                self.cut.insert(strand);
            }
            Task { state, .. } if state == "abandoned" => {
                self.cut.insert(strand);
            }
            Task { .. } => {}
        }
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something, as long as it may take.
    async fn until(&self, done: impl Fn(&Left) -> bool) {
        let waits = async {
            loop {
                let more = self.changed.notified();
                tokio::pin!(more);
                // From here on nothing is missed.
                more.as_mut().enable();
                if done(&self.left()) {
                    return;
                }
                more.await;
            }
        };
        let _ = tokio::time::timeout(MAX_SETTLING, waits).await;
    }

    /// Whether someone stopped waiting for something in the strand that this is in.
    fn is_cut(&self) -> bool {
        self.cut.contains(&strand::name())
    }
}

impl Tape for Rewound {
    fn begin(&self, script: &Script) -> Option<Given> {
        let mut left = self.left();
        let ran = left.scripts.get_mut(&key(strand::name(), script)).and_then(|kept| {
            // Several scripts of one file may be called with the same arguments.
            let same = kept.iter().position(|ran| ran.script.code == script.code);
            kept.remove(same.unwrap_or(0))
        });
        // One that the record knows nothing of gets no answer at all: it is new, or nobody waited until it ran.
        let Some(ran) = ran else { return Some(Given { abandoned: self.is_cut(), ..Given::default() }) };
        let late = milliseconds(&ran.result).filter(|_| ran.outcome == "limited").map(|allowed| Late {
            allowed,
            place: ran.waited.map_or(LatePoint::Computing(ran.fuel), LatePoint::Waiting),
        });
        Some(Given { answers: ran.answers.into(), late, abandoned: ran.outcome == "abandoned", busy: ran.busy })
    }

    fn end(&self, ran: Ran) {
        Tape::end(self.recorder.as_ref(), ran);
    }
}

impl Confirmer for Rewound {
    fn confirm<'a>(&'a self, question: &'a Question<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>> {
        Box::pin(async move {
            let key = (strand::name(), question.tool.to_owned());
            let said = self.left().answers.get_mut(&key).and_then(VecDeque::pop_front);
            match said {
                Some(answer) => answer,
                // The question was left open.
                None if self.is_cut() => strand::cut().await,
                None => Answer::Nobody,
            }
        })
    }
}

impl Past for Rewound {
    fn began(&self, strand: &str) -> Option<Began> {
        let began = self.began.get(strand).cloned();
        if let Some(Began::As(task)) = &began {
            self.left().open.insert(task.clone(), strand.to_owned());
        }
        began
    }

    fn looked(&self) -> Option<Looked> {
        self.left().looked.get_mut(&strand::name()).and_then(VecDeque::pop_front)
    }

    fn saw(&self, look: u64) -> Seen {
        if self.adders.is_empty() {
            return Seen::Anew;
        }
        let look = self.left().look(strand::name(), look);
        self.saw.get(&look).map_or(Seen::Same, |saw| Seen::Other { additions: saw.additions, adds: saw.adds.is_some() })
    }

    fn state(&self, additions: u64) -> Pin<Box<dyn Future<Output = Option<Arc<Added>>> + Send + '_>> {
        Box::pin(async move {
            let adder = self.adders.get(&additions);
            let never = |left: &Left| adder.is_none_or(|(strand, turn)| left.is_over(strand, *turn));
            self.until(|left| left.states.contains_key(&additions) || never(left)).await;
            self.left().states.get(&additions).cloned()
        })
    }

    fn keep(&self, added: &Arc<Added>) {
        self.left().states.insert(added.additions, added.clone());
        self.changed.notify_waiters();
    }

    fn over(&self, task: &str) {
        let mut left = self.left();
        let strand = left.open.remove(task);
        left.over.extend(strand);
        drop(left);
        self.changed.notify_waiters();
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let name = strand::name();
        let below = if name.is_empty() { name } else { format!("{name}.") };
        Box::pin(self.until(move |left| !left.open.values().any(|strand| strand.starts_with(&below))))
    }

    fn late_task(&self, task: &str) -> Option<u64> {
        self.late_tasks.get(task).copied()
    }

    fn late_delegation(&self, id: &str) -> bool {
        self.late_delegations.contains(id)
    }

    fn load(&self, script: &Script) -> Option<LoadEnd> {
        let mut left = self.left();
        let kept = left.scripts.get_mut(&key(strand::name(), script))?;
        // How long another text takes to load is not known.
        let ran = kept.iter().position(|ran| ran.script.code == script.code).and_then(|at| kept.remove(at))?;
        if ran.outcome == "abandoned" {
            return Some(LoadEnd::Abandoned);
        }
        let allowed = milliseconds(&ran.result).unwrap_or_default();
        Some(LoadEnd::Late { why: ran.result, allowed, fuel: ran.fuel })
    }

    fn unfinished(&self) -> Option<String> {
        let mut left = self.left();
        let turn = left.turns_begun;
        left.unfinished.remove(&turn)
    }

    fn turn(&self, by: &str) -> Went {
        let mut left = self.left();
        if by == ROOT {
            left.turns_begun = left.turns_begun.saturating_add(1);
            self.changed.notify_waiters();
        }
        let Turned { late, refused } = left.turns.get_mut(by).and_then(VecDeque::pop_front).unwrap_or_default();
        // Where one works after the other it is found out again.
        Went { late, refused: (!self.began.is_empty()).then_some(refused) }
    }
}
