//! Calls that last, as tasks of the extension `io.modelcontextprotocol/tasks`.
//!
//! A task is a call that its client does not wait for: it asks for the state, answers questions, and may cancel it. The
//! call itself is an ordinary one. rmcp's own `TaskManager` is not used: it has no bound, and forgets by a clock that
//! tests cannot set.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolResponse, CreateTaskResult, DetailedTask, ErrorData, InputRequest, InputRequests, InputResponses,
    JsonObject, Task, TaskPayload,
};
use rmcp::task_manager::current_timestamp;
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a call may take before it becomes a task.
pub(crate) const TASK_AFTER: Duration = Duration::from_secs(10);
/// Tasks of one server that have not ended.
pub(crate) const MAX_RUNNING: usize = 64;
/// Tasks of one server, those included whose results are kept.
pub(crate) const MAX_KEPT: usize = 1024;
/// How long the result of a task is kept after its end.
const KEPT: Duration = Duration::from_secs(10 * 60);
/// How often a client is to ask for the state of a task, in milliseconds.
const POLL_MS: u64 = 1_000;

/// How a call that is a task ends.
pub(crate) type Ended = Result<CallToolResponse, ErrorData>;

/// The tasks of one server.
#[derive(Debug)]
pub(crate) struct Tasks {
    all: Mutex<HashMap<String, Entry>>,
    /// Those at one time.
    most_running: usize,
    /// The same with those whose results are kept.
    most_kept: usize,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new((MAX_RUNNING, MAX_KEPT))
    }
}

#[derive(Debug)]
struct Entry {
    created: String,
    updated: String,
    began: Instant,
    ended: Option<Instant>,
    message: Option<String>,
    /// How it has ended. While it has not, what is open decides.
    end: Option<TaskPayload>,
    questions: BTreeMap<String, Question>,
    /// Numbers questions, so that no two of a task have one key.
    asked: u64,
    canceled: CancellationToken,
}

/// A question to the client that has not been answered.
#[derive(Debug)]
struct Question {
    request: InputRequest,
    answer: oneshot::Sender<Json>,
}

impl Entry {
    fn payload(&self) -> TaskPayload {
        match &self.end {
            Some(end) => end.clone(),
            None if self.questions.is_empty() => TaskPayload::Working,
            None => {
                let open = self.questions.iter().map(|(key, question)| (key.clone(), question.request.clone()));
                TaskPayload::InputRequired { input_requests: open.collect::<InputRequests>() }
            }
        }
    }

    fn task(&self, id: &str) -> Task {
        let lived = self.ended.unwrap_or_else(Instant::now).duration_since(self.began);
        let ttl = u64::try_from((lived + KEPT).as_millis()).unwrap_or(u64::MAX);
        let task = Task::new(id, self.payload().status(), &self.created, &self.updated);
        let task = task.with_ttl_ms(ttl).with_poll_interval_ms(POLL_MS);
        match &self.message {
            Some(message) => task.with_status_message(message),
            None => task,
        }
    }

    fn touch(&mut self) {
        self.updated = current_timestamp();
    }

    /// Whether it has not ended before.
    fn settle(&mut self, end: TaskPayload) -> bool {
        if self.end.is_some() {
            return false;
        }
        self.end = Some(end);
        self.ended = Some(Instant::now());
        self.questions.clear();
        self.touch();
        true
    }
}

impl Tasks {
    /// Tasks with these bounds: those at one time, and those whose results are kept included.
    pub(crate) fn new((most_running, most_kept): (usize, usize)) -> Self {
        Self { all: Mutex::default(), most_running, most_kept }
    }

    /// Whether there is none, not even a result that is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        all.retain(|_, entry| entry.ended.is_none_or(|ended| ended + KEPT > now));
        all
    }

    fn with<T>(&self, id: &str, work: impl FnOnce(&mut Entry) -> T) -> Result<T, ErrorData> {
        let unknown =
            || ErrorData::invalid_params("there is no task with this `taskId`, or it ended too long ago", None);
        self.all().get_mut(id).map(work).ok_or_else(unknown)
    }

    /// Begins a task. None if there is no room for another one.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Handle> {
        let mut all = self.all();
        let running = all.values().filter(|entry| entry.ended.is_none()).count();
        if running >= self.most_running || all.len() >= self.most_kept {
            return None;
        }
        let mut number = [0; 16];
        harness_sys::fill_random(&mut number);
        let id = format!("{:032x}", u128::from_ne_bytes(number));
        let now = current_timestamp();
        let canceled = CancellationToken::new();
        all.insert(
            id.clone(),
            Entry {
                created: now.clone(),
                updated: now,
                began: Instant::now(),
                ended: None,
                message: None,
                end: None,
                questions: BTreeMap::new(),
                asked: 0,
                canceled: canceled.clone(),
            },
        );
        Some(Handle { tasks: self.clone(), id: id.into(), canceled })
    }

    /// Makes a call, and waits for it for this long. Then it becomes a task if there is room for one. With no time at all it
    /// is a task before it begins.
    pub(crate) async fn lead(
        self: &Arc<Self>,
        work: impl Future<Output = Ended> + Send + 'static,
        slot: &Slot,
        after: Duration,
        closing: CancellationToken,
    ) -> Ended {
        let mut call = JoinSet::new();
        let at_once = if after.is_zero() { self.begin() } else { None };
        if let Some(task) = at_once {
            slot.set(task.clone()).await;
            call.spawn(work);
            return task.created(call, closing);
        }
        call.spawn(work);
        tokio::select! {
            biased;
            ended = call.join_next() => return joined(ended),
            () = tokio::time::sleep(after) => {}
        }
        let Some(task) = self.begin() else { return joined(call.join_next().await) };
        slot.set(task.clone()).await;
        task.created(call, closing)
    }

    /// `tasks/get`: the state of a task.
    ///
    /// # Errors
    ///
    /// That there is none of this identifier.
    pub(crate) fn get(&self, id: &str) -> Result<DetailedTask, ErrorData> {
        self.with(id, |entry| DetailedTask::new(entry.task(id), entry.payload()))
    }

    /// `tasks/update`: answers to questions. Those to others than the open ones are ignored.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub(crate) fn update(&self, id: &str, answers: InputResponses) -> Result<(), ErrorData> {
        self.with(id, |entry| {
            for (key, answer) in answers {
                if let Some(question) = entry.questions.remove(&key) {
                    let _ = question.answer.send(answer);
                    entry.touch();
                }
            }
        })
    }

    /// `tasks/cancel`: ends a task, if it has not ended.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub(crate) fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        self.with(id, |entry| {
            if entry.settle(TaskPayload::Cancelled) {
                entry.canceled.cancel();
            }
        })
    }
}

/// One task, for the call that it is.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    tasks: Arc<Tasks>,
    id: Arc<str>,
    canceled: CancellationToken,
}

impl Handle {
    /// The answer to a request whose call continues as this task.
    fn created(self, call: JoinSet<Ended>, closing: CancellationToken) -> Ended {
        let created = self.tasks.with(&self.id, |entry| entry.task(&self.id))?;
        tokio::spawn(self.follow(call, closing));
        Ok(CallToolResponse::Task(CreateTaskResult::new(created)))
    }

    /// Says how far the task is.
    pub(crate) fn report(&self, message: String) {
        let _ = self.tasks.with(&self.id, |entry| {
            entry.message = Some(message);
            entry.touch();
        });
    }

    /// Asks the client, and waits for what it says. Nothing if the task ends before.
    pub(crate) async fn ask(&self, request: InputRequest) -> Option<Json> {
        let (answer, said) = oneshot::channel();
        let ask = |entry: &mut Entry| {
            if entry.end.is_none() {
                entry.asked += 1;
                entry.questions.insert(format!("input_{}", entry.asked), Question { request, answer });
                entry.touch();
            }
        };
        self.tasks.with(&self.id, ask).ok()?;
        said.await.ok()
    }

    /// Waits for the only one of these calls, until the task is canceled or the server closes. Then the call ends.
    async fn follow(self, mut call: JoinSet<Ended>, closing: CancellationToken) {
        let end = tokio::select! {
            biased;
            () = self.canceled.cancelled() => TaskPayload::Cancelled,
            () = closing.cancelled() => failed(&ErrorData::internal_error("the task was ended: the server is closing", None)),
            ended = call.join_next() => payload(joined(ended)),
        };
        let _ = self.tasks.with(&self.id, |entry| entry.settle(end));
    }
}

/// How the only call of a set has ended.
fn joined(ended: Option<Result<Ended, JoinError>>) -> Ended {
    ended
        .and_then(Result::ok)
        .unwrap_or_else(|| Err(ErrorData::internal_error("the server failed during this call", None)))
}

fn payload(ended: Ended) -> TaskPayload {
    match ended {
        Ok(CallToolResponse::Complete(result)) => match serde_json::to_value(result) {
            Ok(Json::Object(result)) => TaskPayload::Completed { result },
            _ => failed(&ErrorData::internal_error("the result cannot be written", None)),
        },
        // The question was asked in the moment in which the call became a task.
        Ok(_) => failed(&ErrorData::internal_error("the call needs an answer of the client: send it again", None)),
        Err(error) => failed(&error),
    }
}

fn failed(error: &ErrorData) -> TaskPayload {
    let error = match serde_json::to_value(error) {
        Ok(Json::Object(error)) => error,
        _ => JsonObject::from_iter([
            ("code".to_owned(), json!(error.code.0)),
            ("message".to_owned(), json!(error.message)),
        ]),
    };
    TaskPayload::Failed { error }
}

/// The task that a call has become, if it has.
#[derive(Debug)]
pub(crate) struct Slot {
    can_be: bool,
    task: tokio::sync::Mutex<Option<Handle>>,
}

impl Slot {
    /// For a call that can become a task, or cannot.
    pub(crate) fn new(can_be: bool) -> Self {
        Self { can_be, task: tokio::sync::Mutex::default() }
    }

    /// Whether the call can become a task.
    pub(crate) fn can_be(&self) -> bool {
        self.can_be
    }

    /// The call becomes this task. What is being sent of it is sent before.
    async fn set(&self, task: Handle) {
        *self.task.lock().await = Some(task);
    }

    /// The task. The call does not become one while this is held.
    pub(crate) async fn get(&self) -> tokio::sync::MutexGuard<'_, Option<Handle>> {
        self.task.lock().await
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams, TaskStatus};

    use super::*;

    fn question() -> InputRequest {
        let schema = serde_json::from_value(json!({"type": "object", "properties": {}})).unwrap();
        InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: "Really?".to_owned(),
            requested_schema: schema,
        }))
    }

    fn call(work: impl Future<Output = Ended> + Send + 'static) -> JoinSet<Ended> {
        let mut call = JoinSet::new();
        call.spawn(work);
        call
    }

    fn done() -> Ended {
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]).into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_kept_for_a_time_after_the_end() {
        let tasks = Arc::new(Tasks::default());
        let task = tasks.begin().unwrap();
        let id = task.id.to_string();
        assert_eq!(tasks.get(&id).unwrap().status(), TaskStatus::Working);
        // However long it takes.
        tokio::time::advance(KEPT * 3).await;
        assert_eq!(tasks.get(&id).unwrap().task.ttl_ms, Some(4 * 600_000));
        task.follow(call(async { done() }), CancellationToken::new()).await;
        tokio::time::advance(KEPT - Duration::from_millis(1)).await;
        let ended = tasks.get(&id).unwrap();
        assert_eq!(ended.task.ttl_ms, Some(4 * 600_000));
        let TaskPayload::Completed { result } = ended.payload else { panic!("{ended:?}") };
        assert_eq!(result["content"], json!([{"type": "text", "text": "done"}]));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(tasks.get(&id).unwrap_err().code.0, -32602);
    }

    #[tokio::test]
    async fn a_question_is_open_until_it_is_answered() {
        let tasks = Arc::new(Tasks::default());
        let task = tasks.begin().unwrap();
        let id = task.id.to_string();
        let asking = task.clone();
        let both = tokio::spawn(async move { tokio::join!(asking.ask(question()), asking.ask(question())) });
        let open = |tasks: &Tasks| match tasks.get(&id).unwrap().payload {
            TaskPayload::InputRequired { input_requests } => input_requests.into_keys().collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        while open(&tasks).len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(open(&tasks), ["input_1", "input_2"]);
        let answers = |key: &str| InputResponses::from([(key.to_owned(), json!(key))]);
        tasks.update(&id, answers("input_9")).unwrap();
        tasks.update(&id, answers("input_1")).unwrap();
        assert_eq!(open(&tasks), ["input_2"]);
        tasks.update(&id, answers("input_2")).unwrap();
        assert_eq!(both.await.unwrap(), (Some(json!("input_1")), Some(json!("input_2"))));
        assert_eq!(tasks.get(&id).unwrap().status(), TaskStatus::Working);
        // Nobody waits for an answer for ever.
        let asking = task.clone();
        let asked = tokio::spawn(async move { asking.ask(question()).await });
        while open(&tasks).is_empty() {
            tokio::task::yield_now().await;
        }
        tasks.cancel(&id).unwrap();
        assert_eq!((asked.await.unwrap(), task.ask(question()).await), (None, None));
        assert_eq!(tasks.get(&id).unwrap().status(), TaskStatus::Cancelled);
        assert!(tasks.update("x", answers("input_1")).is_err() && tasks.cancel("x").is_err());
    }

    #[tokio::test]
    async fn a_task_ends_once() {
        let tasks = Arc::new(Tasks::default());
        let endless = || call(std::future::pending());
        let (canceled, closed) = (tasks.begin().unwrap(), tasks.begin().unwrap());
        let (id, closing) = (canceled.id.to_string(), CancellationToken::new());
        tasks.cancel(&id).unwrap();
        canceled.follow(call(async { done() }), closing.clone()).await;
        tasks.cancel(&id).unwrap();
        assert_eq!(tasks.get(&id).unwrap().status(), TaskStatus::Cancelled);
        closing.cancel();
        let id = closed.id.to_string();
        closed.follow(endless(), closing).await;
        assert_eq!(tasks.get(&id).unwrap().status(), TaskStatus::Failed);
        let broken = tasks.begin().unwrap();
        let id = broken.id.to_string();
        broken.follow(call(async { Err(ErrorData::invalid_params("no", None)) }), CancellationToken::new()).await;
        let TaskPayload::Failed { error } = tasks.get(&id).unwrap().payload else { panic!() };
        assert_eq!(Json::Object(error), json!({"code": -32602, "message": "no"}));
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_so_many() {
        let tasks = Arc::new(Tasks::default());
        let running: Vec<Handle> = std::iter::from_fn(|| tasks.begin()).take(MAX_RUNNING + 1).collect();
        assert_eq!(running.len(), MAX_RUNNING);
        for task in running {
            task.follow(call(async { done() }), CancellationToken::new()).await;
        }
        let mut kept = MAX_RUNNING;
        while let Some(task) = tasks.begin() {
            task.follow(call(async { done() }), CancellationToken::new()).await;
            kept += 1;
        }
        assert_eq!(kept, MAX_KEPT);
        tokio::time::advance(KEPT).await;
        assert!(tasks.begin().is_some());
    }

    /// The clock advances by itself when nothing else is to be done.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_lasts_becomes_a_task() {
        let (tasks, closing) = (Arc::new(Tasks::default()), CancellationToken::new());
        let lead = async |work: Duration, after: Duration| {
            let slot = Slot::new(true);
            let work = async move {
                tokio::time::sleep(work).await;
                done()
            };
            let ended = tasks.lead(work, &slot, after, closing.clone()).await.unwrap();
            let task = slot.get().await.as_ref().map(|task| task.id.to_string());
            (ended, task)
        };
        let just = TASK_AFTER - Duration::from_millis(1);
        let (ended, task) = lead(just, TASK_AFTER).await;
        assert!(matches!(ended, CallToolResponse::Complete(_)) && task.is_none(), "{ended:?}");
        for (took, after) in [(TASK_AFTER * 2, TASK_AFTER), (Duration::ZERO, Duration::ZERO)] {
            let (ended, task) = lead(took, after).await;
            let CallToolResponse::Task(created) = ended else { panic!("{ended:?}") };
            assert_eq!((Some(created.task.task_id), created.task.status), (task.clone(), TaskStatus::Working));
            let id = task.unwrap();
            while tasks.get(&id).unwrap().status() == TaskStatus::Working {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(tasks.get(&id).unwrap().status(), TaskStatus::Completed);
        }
        // Without room it is waited for.
        let _running: Vec<Handle> = std::iter::from_fn(|| tasks.begin()).collect();
        for after in [TASK_AFTER, Duration::ZERO] {
            let (ended, task) = lead(TASK_AFTER * 2, after).await;
            assert!(matches!(ended, CallToolResponse::Complete(_)) && task.is_none(), "{ended:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_waits_for_ends() {
        let tasks = Arc::new(Tasks::default());
        let (ended, gone) = oneshot::channel::<()>();
        let work = async move {
            let _ended = ended;
            std::future::pending().await
        };
        let slot = Slot::new(true);
        let led = tasks.lead(work, &slot, TASK_AFTER, CancellationToken::new());
        assert!(tokio::time::timeout(TASK_AFTER / 2, led).await.is_err());
        assert!(gone.await.is_err());
    }
}
