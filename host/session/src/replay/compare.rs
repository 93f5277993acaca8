//! What is not the same in two records of one session.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Value as Json, json};

use crate::record::{Called, Decided, Line, ROOT, ScriptRan, Started, Task, What, Work};
use crate::text::number;
use harness_sandbox::tape::Script;

/// Differences that are reported; one in the beginning may make all that follows another.
const MAX: usize = 50;
/// Characters of a text that are shown of it.
const SHOWN: usize = 160;

/// What was compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compared {
    /// Turns, those of sub-agents too.
    pub turns: u64,
    /// Calls of tools.
    pub calls: u64,
    /// Events that hooks decided on, outside of calls.
    pub events: u64,
    /// Runs of scripts.
    pub scripts: u64,
    /// Requests to models.
    pub replies: u64,
}

/// Something that is not the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// In whose work.
    pub place: String,
    /// What it is about.
    pub what: String,
    /// What is another. Empty: all of it is there only once.
    pub fields: Vec<Field>,
}

/// One thing that is not the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// As it was.
    pub recorded: String,
    /// As it is.
    pub now: String,
}

impl Difference {
    pub(super) fn to_json(&self) -> Json {
        let fields: Vec<Json> = self
            .fields
            .iter()
            .map(|field| json!({"name": field.name, "recorded": field.recorded, "now": field.now}))
            .collect();
        json!({"place": self.place, "what": self.what, "fields": fields})
    }
}

/// A line as far as it is compared: what it is about, and what has to be the same of it.
#[derive(Debug, Clone, PartialEq)]
struct Fact {
    what: String,
    fields: Vec<(&'static str, String)>,
}

/// What each agent at work did, and each task of it.
type Agents = BTreeMap<(String, String), Agent>;

#[derive(Debug, Default)]
struct Agent {
    name: String,
    turns: Vec<Turn>,
    /// What happened before, between and after turns.
    around: Turn,
    open: bool,
}

#[derive(Debug, Default)]
struct Turn {
    facts: Vec<Fact>,
    /// Whether it came to no end: then it is only a beginning.
    cut: bool,
}

/// Compares the lines of two records.
pub(super) fn compare(recorded: &[Line], now: &[Line]) -> (Compared, Vec<Difference>) {
    let mut compared = Compared::default();
    let mut differences = Vec::new();
    let (was, mut is) = (agents(recorded), agents(now));
    // What an agent did follows from what the one did that set it to work.
    let mut was: Vec<_> = was.into_iter().collect();
    was.sort_by_key(|((by, strand), _)| (by != ROOT, strand.clone()));
    for (by, was) in was {
        let is = is.remove(&by).unwrap_or_default();
        of_agent(&by, &was, &is, &mut compared, &mut differences);
    }
    for (by, is) in is {
        of_agent(&by, &Agent::default(), &is, &mut compared, &mut differences);
    }
    scripts(recorded, now, &mut compared, &mut differences);
    differences.truncate(MAX);
    (compared, differences)
}

fn agents(lines: &[Line]) -> Agents {
    let mut all = Agents::new();
    for line in lines.iter().filter(|line| !line.by.is_empty()) {
        let agent = all.entry((line.by.clone(), line.strand.clone())).or_default();
        if let What::Turn(turn) = &line.what {
            agent.name.clone_from(&turn.agent);
        }
        if matches!(line.what, What::Turn(_) | What::Continued(_)) {
            agent.turns.push(Turn { facts: Vec::new(), cut: true });
            agent.open = true;
        }
        let open = agent.open;
        let turn = if open { agent.turns.last_mut() } else { Some(&mut agent.around) };
        if let Some(turn) = turn {
            turn.facts.extend(fact(&line.what));
            turn.cut &= !matches!(line.what, What::Turned(_));
        }
        agent.open &= !matches!(line.what, What::Turned(_) | What::Stopped { .. });
    }
    all
}

fn of_agent(
    (by, strand): &(String, String),
    was: &Agent,
    is: &Agent,
    compared: &mut Compared,
    differences: &mut Vec<Difference>,
) {
    let name = if was.name.is_empty() { &is.name } else { &was.name };
    let who = if name.is_empty() { by.clone() } else { format!("{name} ({by})") };
    let who = if strand.is_empty() { who } else { format!("{who} in task {strand}") };
    let none = Turn::default();
    for at in 0..was.turns.len().max(is.turns.len()) {
        let place = format!("{who}, turn {}", at.saturating_add(1));
        let (old, new) = (was.turns.get(at).unwrap_or(&none), is.turns.get(at).unwrap_or(&none));
        of_turn(&place, old, new, compared, differences);
    }
    of_turn(&format!("{who}, around the turns"), &was.around, &is.around, compared, differences);
}

fn of_turn(place: &str, was: &Turn, is: &Turn, compared: &mut Compared, differences: &mut Vec<Difference>) {
    let mut told = |what: String, fields| {
        differences.push(Difference { place: place.to_owned(), what, fields });
    };
    for step in 0..was.facts.len().max(is.facts.len()) {
        match (was.facts.get(step), is.facts.get(step)) {
            (Some(old), Some(new)) if old.what == new.what => {
                compared.count(&old.what);
                let fields = fields(old, new);
                if !fields.is_empty() {
                    told(old.what.clone(), fields);
                }
                continue;
            }
            (Some(old), Some(new)) => {
                let field = Field { name: "step", recorded: old.what.clone(), now: new.what.clone() };
                told("the replay diverges here".to_owned(), vec![field]);
            }
            (Some(old), None) => told(format!("{} is recorded and did not happen in the replay", old.what), Vec::new()),
            (None, Some(new)) if !was.cut => told(format!("{} is not in the recordinging", new.what), Vec::new()),
            (None, _) => {}
        }
        return;
    }
}

impl Compared {
    fn count(&mut self, what: &str) {
        let counted = match what.split(' ').next() {
            Some("turn" | "turn,") => &mut self.turns,
            Some("call") => &mut self.calls,
            Some("event") => &mut self.events,
            Some("request") => &mut self.replies,
            _ => return,
        };
        *counted = counted.saturating_add(1);
    }
}

fn fields(old: &Fact, new: &Fact) -> Vec<Field> {
    let mut differ: Vec<Field> = Vec::new();
    for at in 0..old.fields.len().max(new.fields.len()) {
        let nothing = ("", String::new());
        let (was, is) = (old.fields.get(at).unwrap_or(&nothing), new.fields.get(at).unwrap_or(&nothing));
        if was != is {
            let name = if was.0.is_empty() { is.0 } else { was.0 };
            differ.push(Field { name, recorded: short(&was.1), now: short(&is.1) });
        }
    }
    differ
}

fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// What is compared of a line, where something is. What a model said, and what of it took its place in a conversation,
/// is the record's own in both.
fn fact(what: &What) -> Option<Fact> {
    let of = |what: String, fields: Vec<(&'static str, String)>| Some(Fact { what, fields });
    match what {
        What::Turn(turn) => of("turn".to_owned(), vec![("text", turn.text.clone()), ("depth", turn.depth.to_string())]),
        What::Continued(turn) => {
            of("turn, its rest".to_owned(), vec![("text", turn.text.clone()), ("begun", turn.begun.join(", "))])
        }
        What::Asked(asked) => of(
            format!("request {}", asked.round),
            vec![
                ("messages", asked.said.clone()),
                ("model and tools", asked.offered.clone()),
                ("room", asked.room.to_string()),
            ],
        ),
        What::Unanswered(failed) => of("failure of a model".to_owned(), vec![("error", failed.error.clone())]),
        What::Event(decided) => {
            let mut fields = Vec::new();
            of_event(decided, &mut fields);
            of(format!("event {}", decided.event), fields)
        }
        What::Called(called) => {
            let mut fields = Vec::new();
            of_call(called, &mut fields);
            of(format!("call {} of {}", called.call, called.tool), fields)
        }
        What::Delegated(delegated) => {
            of(format!("delegation to {}, attempt {}", delegated.to, delegated.attempt), Vec::new())
        }
        What::Judged(judged) => of(
            format!("verdict on {}", judged.of),
            vec![("refused", judged.refused.clone().unwrap_or_else(|| "no".to_owned()))],
        ),
        What::Returned(returned) => of(
            format!("result of {}", returned.from),
            vec![
                ("result", returned.result.clone().unwrap_or_default()),
                ("error", returned.error.clone().unwrap_or_default()),
            ],
        ),
        What::Turned(turned) => of(
            "end of the turn".to_owned(),
            vec![
                ("answer", turned.answer.clone().unwrap_or_default()),
                ("error", turned.error.clone().unwrap_or_default()),
                ("rounds", turned.rounds.to_string()),
            ],
        ),
        What::Task(task) => of_task(task),
        What::Confirmation(said) => of(format!("confirmation of {}", said.tool), vec![("answer", said.answer.clone())]),
        What::Session(_)
        | What::Said(_)
        | What::Question(_)
        | What::Retry(_)
        | What::Reply(_)
        | What::Calling(_)
        | What::Looked(_)
        | What::Saw(_)
        | What::Script(_)
        | What::Stopped { .. }
        | What::Forgot(_)
        | What::Switched(_)
        | What::Unmade(_)
        | What::Full {}
        | What::Ended {} => None,
    }
}

/// The beginning of a task in a call, or its end. One that was ended with its owner ended at any moment.
fn of_task(task: &Task) -> Option<Fact> {
    if let Some(called) = &task.called {
        let mut fields = Vec::new();
        of_call(called, &mut fields);
        return Some(Fact { what: format!("end of the task of {}", called.tool), fields });
    }
    task.call.as_ref()?;
    let (state, why) = (task.state.clone(), task.why.clone().unwrap_or_default());
    Some(Fact { what: format!("task of {}", task.tool), fields: vec![("state", state), ("why", why)] })
}

fn of_event(decided: &Decided, fields: &mut Vec<(&'static str, String)>) {
    fields.push(("decision", decided.blocked.clone().unwrap_or_else(|| "allow".to_owned())));
    for hook in &decided.hooks {
        fields.push(("hook", format!("{}: {}", hook.hook, hook.verdict)));
        fields.push(("reason", hook.reason.clone().unwrap_or_default()));
        of_work("fuel of a hook", &hook.work, fields);
    }
}

fn of_call(called: &Called, fields: &mut Vec<(&'static str, String)>) {
    fields.extend([
        ("outcome", called.outcome.clone()),
        ("why", called.why.clone().unwrap_or_default()),
        ("result", called.content.clone()),
    ]);
    for decided in called.pre.iter().chain(&called.post) {
        of_event(decided, fields);
    }
    of_work("fuel of the tool", &called.work, fields);
    if let Some(judged) = &called.verify {
        fields.push(("verify", judged.refused.clone().unwrap_or_else(|| "accepted".to_owned())));
        of_work("fuel of its `verify`", &judged.work, fields);
    }
    fields.push(("fuel", number(called.fuel)));
}

fn of_work(name: &'static str, work: &Work, fields: &mut Vec<(&'static str, String)>) {
    fields.push((name, number(work.fuel)));
    let host: Vec<String> = work.host.iter().map(|call| format!("{} {}", call.call, call.subject)).collect();
    fields.push(("host calls", host.join(", ")));
    for started in &work.started {
        match started {
            Started::Event(decided) => of_event(decided, fields),
            Started::Call(called) => of_call(called, fields),
            Started::Agent(name) => fields.push(("sub-agent", name.clone())),
            Started::Rest(rest) => {
                fields.push(("not kept", format!("{} more, fuel {}", rest.count, number(rest.fuel))))
            }
        }
    }
}

/// Each run of a script beside the one with the same input.
fn scripts(recorded: &[Line], now: &[Line], compared: &mut Compared, differences: &mut Vec<Difference>) {
    let mut again: HashMap<_, VecDeque<&ScriptRan>> = HashMap::new();
    for (strand, ran) in ran(now) {
        again.entry(key(strand, &ran.script)).or_default().push_back(ran);
    }
    let mut missing = 0_usize;
    for (strand, old) in ran(recorded) {
        let Some(new) = again.get_mut(&key(strand, &old.script)).and_then(VecDeque::pop_front) else {
            missing = missing.saturating_add(1);
            continue;
        };
        compared.scripts = compared.scripts.saturating_add(1);
        let facts = |ran: &ScriptRan| {
            let (outcome, result) = (ran.outcome.clone(), ran.result.clone());
            let fields = vec![("outcome", outcome), ("result", result), ("fuel", number(ran.fuel))];
            Fact { what: format!("{} in {}", old.script.role, old.script.file), fields }
        };
        let mut fields = fields(&facts(old), &facts(new));
        if !fields.is_empty() {
            if old.script.code != new.script.code {
                let digests = [&old.script.code, &new.script.code].map(|digest| short(digest));
                let [recorded, now] = digests;
                fields.push(Field { name: "script", recorded, now });
            }
            let what = format!("{} in {}", old.script.role, old.script.file);
            differences.push(Difference { place: "scripts".to_owned(), what, fields });
        }
    }
    if missing > 0 {
        let what = format!("{missing} recorded runs did not happen again with the same input");
        differences.push(Difference { place: "scripts".to_owned(), what, fields: Vec::new() });
    }
}

/// Those that ended, with their strands.
fn ran(lines: &[Line]) -> impl Iterator<Item = (&str, &ScriptRan)> {
    lines.iter().filter_map(|line| match &line.what {
        What::Script(ran) if ran.outcome != "abandoned" => Some((line.strand.as_str(), ran)),
        _ => None,
    })
}

fn key<'a>(strand: &'a str, script: &'a Script) -> (&'a str, &'a str, &'a str, &'a str) {
    (strand, &script.file, &script.role, &script.input)
}
