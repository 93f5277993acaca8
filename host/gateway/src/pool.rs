//! The processes and sessions of servers that a run has, and the calls that they answer.
//!
//! A process or session answers nothing before its definitions were compared with the lock, and nothing any more when they differ.
//! Whatever changed then stays refused until the run ends.

use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use tokio::sync::Mutex;

use crate::elicit::{self, Answerer};
use crate::era::{About, Opened, params};
use crate::failure::Failure;
use crate::limits::{BACKOFF, KEPT, RESTARTS, ROUNDS};
use crate::link::Link;
use crate::listing;
use crate::message::{HEADER_MISMATCH, MODERN, RpcError};
use crate::process::{self, Host};
use crate::remote::LOST;
use crate::results::ToolResult;
use harness_artifact::pinned::{self, Change, Pinned};
use harness_artifact::policy::mcp::{Keep, McpServer};
use harness_artifact::third_party;
use harness_policy::grant::Grant;

/// How much of the processor a kept process may use: its calls have deadlines of their own.
pub(crate) const KEPT_TIME: Duration = Duration::from_secs(86_400);

/// Why a process ends whose only call was ended.
const CANCELED: &str = "the call that it answered was ended";

/// A call of a server's tool.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The server, as the policy has it.
    pub server: &'a McpServer,
    /// The same, as it was locked.
    pub locked: &'a Pinned,
    /// The tool, by its name at the server.
    pub tool: &'a str,
    /// A JSON object.
    pub arguments: &'a Json,
    /// The time that the call has. Whoever makes it sees to that.
    pub time: Duration,
}

/// The processes of servers of one run. They end with it.
#[derive(Debug, Default)]
pub struct Servers {
    kept: std::sync::Mutex<Vec<Arc<Kept>>>,
}

/// A server that a run keeps, with what it may do: with another grant it is another process.
#[derive(Debug)]
struct Kept {
    server: McpServer,
    locked: Pinned,
    grant: Grant,
    /// Whether it may ask a person, which it is told when it begins.
    can_ask: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Arc<Live>>,
    /// How often it has ended by itself, or could not be started.
    ends: u32,
    /// Why it answers nothing any more.
    refused: Option<Failure>,
}

/// A process or session that was compared with the lock.
#[derive(Debug)]
struct Live {
    link: Link,
    about: About,
}

impl Servers {
    /// Makes a call. Dropping the future ends the process that answers it, unless that answers other calls too; these
    /// then hear nothing of it.
    ///
    /// # Errors
    ///
    /// Why there is no result.
    pub async fn call(&self, call: Call<'_>, host: Host<'_>) -> Result<ToolResult, Failure> {
        // Of a type of its own: what callers wrap around it is deep enough.
        let making: Pin<Box<dyn Future<Output = Result<ToolResult, Failure>> + Send + '_>> = match call.server.keep {
            Keep::Call => Box::pin(fresh(call, &host)),
            Keep::Run => {
                let kept = self.kept(call, &host)?;
                let host = &host;
                Box::pin(async move { kept.call(call, host).await })
            }
        };
        making.await.map_err(|failure| named(&call.server.name, failure))
    }

    /// Ends all processes, and waits for that.
    pub async fn close(&self) {
        let all = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let close = async |kept: Arc<Kept>| {
            let live = kept.state.lock().await.live.take();
            if let Some(live) = live.and_then(Arc::into_inner) {
                live.link.close().await;
            }
        };
        futures_util::future::join_all(all.into_iter().map(close)).await;
    }

    fn kept(&self, call: Call<'_>, host: &Host<'_>) -> Result<Arc<Kept>, Failure> {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let can_ask = host.answerer.is_some();
        let same = |kept: &&Arc<Kept>| {
            let is_of = kept.server == *call.server && kept.locked == *call.locked;
            is_of && kept.grant == *host.grant && kept.can_ask == can_ask
        };
        if let Some(kept) = all.iter().find(same) {
            return Ok(kept.clone());
        }
        if all.len() >= KEPT {
            // One that nobody uses makes room.
            let idle = all.iter().position(|kept| Arc::strong_count(kept) == 1);
            let idle = idle.ok_or_else(|| Failure::Broken(format!("{KEPT} servers are in use at one time")))?;
            all.remove(idle);
        }
        let (server, locked) = (call.server.clone(), call.locked.clone());
        let kept = Arc::new(Kept { server, locked, grant: host.grant.clone(), can_ask, state: Mutex::default() });
        all.push(kept.clone());
        Ok(kept)
    }
}

/// Says whose failure it is.
fn named(server: &str, failure: Failure) -> Failure {
    let whose = |why: String| format!("the MCP server `{server}`: {why}");
    match failure {
        Failure::Broken(why) => Failure::Broken(whose(why)),
        Failure::Said(why) => Failure::Said(whose(why)),
        refused @ Failure::Refused { .. } => refused,
    }
}

/// A call of a process or session of its own.
async fn fresh(call: Call<'_>, host: &Host<'_>) -> Result<ToolResult, Failure> {
    let live = Live::start(call.server, call.locked, host, call.time).await?;
    let (result, changed) = live.ask(call, host.answerer).await;
    let compared = if changed { live.compare(call.server, call.locked).await } else { Ok(()) };
    live.link.end().await;
    compared.and(result)
}

impl Kept {
    async fn call(&self, call: Call<'_>, host: &Host<'_>) -> Result<ToolResult, Failure> {
        let live = self.live(host).await?;
        let made = self.call_of(call, host, live.clone()).await;
        // A session that is not known any more has done nothing with the call: it is made once more, in a new one.
        if made.is_err() && live.link.over().is_some_and(|why| why == LOST) {
            let live = self.live(host).await?;
            return self.call_of(call, host, live).await;
        }
        made
    }

    async fn call_of(&self, call: Call<'_>, host: &Host<'_>, live: Arc<Live>) -> Result<ToolResult, Failure> {
        let using = Using { live: &live, done: false };
        let (result, changed) = live.ask(call, host.answerer).await;
        using.done();
        if changed {
            // What it gave was made by what is no longer what was locked.
            let mut state = self.state.lock().await;
            self.compare(&mut state, &live).await?;
        }
        result
    }

    /// Its process, started where there is none, and compared with the lock where it says that its tools are others.
    async fn live(&self, host: &Host<'_>) -> Result<Arc<Live>, Failure> {
        let mut state = self.state.lock().await;
        if let Some(refused) = &state.refused {
            return Err(refused.clone());
        }
        if let Some(live) = state.live.clone() {
            if live.link.over().is_none() {
                if live.link.take_changed() {
                    self.compare(&mut state, &live).await?;
                }
                return Ok(live);
            }
            let by_itself = live.link.over().is_some_and(|why| why != CANCELED && why != LOST);
            state.ends = state.ends.saturating_add(u32::from(by_itself));
            state.live = None;
        }
        if state.ends > RESTARTS {
            return Err(Failure::Broken(format!("it ended {} times and is not started again in this run", state.ends)));
        }
        if state.ends > 0 {
            tokio::time::sleep(BACKOFF.saturating_mul(4_u32.saturating_pow(state.ends.saturating_sub(1)))).await;
        }
        let started = Live::start(&self.server, &self.locked, host, KEPT_TIME).await;
        match &started {
            Err(refused @ Failure::Refused { .. }) => state.refused = Some(refused.clone()),
            Err(_) => state.ends = state.ends.saturating_add(1),
            Ok(_) => {}
        }
        let live = Arc::new(started?);
        state.live = Some(live.clone());
        Ok(live)
    }

    /// Compares a process with the lock. One that differs answers nothing any more.
    async fn compare(&self, state: &mut State, live: &Arc<Live>) -> Result<(), Failure> {
        let compared = live.compare(&self.server, &self.locked).await;
        if let Err(failure) = &compared {
            live.link.kill("its tools changed while it ran");
            state.live = None;
            if matches!(failure, Failure::Refused { .. }) {
                state.refused = Some(failure.clone());
            }
        }
        compared
    }
}

/// A call that is under way. Dropped before it is done, it was canceled.
struct Using<'a> {
    live: &'a Live,
    done: bool,
}

impl Using<'_> {
    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        // The request itself is dropped before this, and no longer counted.
        if !self.done && self.live.link.is_idle() {
            self.live.link.kill(CANCELED);
        }
    }
}

impl Live {
    /// Starts a process and compares it with the lock.
    async fn start(server: &McpServer, locked: &Pinned, host: &Host<'_>, time: Duration) -> Result<Self, Failure> {
        let Opened { link, about } = process::open(server, locked, host, time).await?;
        let live = Self { link, about };
        let mut changes = Vec::new();
        if live.about.version != locked.version {
            let what = format!("it speaks {} instead of {}", live.about.version, locked.version);
            changes.push(Change { what, lines: Vec::new() });
        }
        changes.extend(pinned::instructions(locked.instructions.as_deref(), live.about.instructions.as_deref()));
        if !changes.is_empty() {
            return Err(Failure::drift(&server.name, &changes));
        }
        if live.about.notifies {
            live.link.subscribe(&live.about.version).await?;
        }
        live.compare(server, locked).await?;
        Ok(live)
    }

    /// Lists the tools again, as often as the server says that they are others, and compares them with the lock.
    async fn compare(&self, server: &McpServer, locked: &Pinned) -> Result<(), Failure> {
        if self.about.notifies {
            self.link.subscribe_again(&self.about.version).await;
        }
        self.link.take_changed();
        let tools = listing::list(&self.link, &self.about.version, server).await?.tools;
        let offered: Vec<_> = locked.tools.iter().filter(|tool| server.offers(tool.name())).cloned().collect();
        let changes = pinned::tools(&offered, &tools);
        if changes.is_empty() { Ok(()) } else { Err(Failure::drift(&server.name, &changes)) }
    }

    /// Asks for a call, as often as its result asks a person. Also says whether the tools changed meanwhile.
    async fn ask(&self, call: Call<'_>, answerer: Option<&dyn Answerer>) -> (Result<ToolResult, Failure>, bool) {
        let mut is_mismatch = false;
        if answerer.is_some() {
            self.link.attend(&self.about.version).await;
        }
        let result = self.rounds(call, answerer, &mut is_mismatch).await;
        let changed = self.link.over().is_none() && (self.link.take_changed() || is_mismatch);
        (result, changed)
    }

    async fn rounds(
        &self,
        call: Call<'_>,
        answerer: Option<&dyn Answerer>,
        is_mismatch: &mut bool,
    ) -> Result<ToolResult, Failure> {
        let is_modern = self.about.version == MODERN;
        let mut answers = Map::new();
        for round in 0..=ROUNDS {
            let mut asked = json!({"name": call.tool, "arguments": call.arguments});
            if let Some(asked) = asked.as_object_mut() {
                asked.append(&mut answers);
            }
            let mut asked = params(&self.about.version, asked);
            if let Some(can) = asked.pointer_mut("/_meta/io.modelcontextprotocol~1clientCapabilities") {
                *can = elicit::capabilities(answerer.is_some());
            }
            let result = self.link.call("tools/call", &asked, answerer).await?;
            // It knows of other headers than those that its definitions have named.
            *is_mismatch = result.as_ref().is_err_and(|error| error.code == HEADER_MISMATCH);
            let said = |error: RpcError| format!("{} ({})", third_party::line(&error.message), error.code);
            let result = result.map_err(|error| Failure::Said(said(error)))?;
            if !is_modern || result.get("resultType").and_then(Json::as_str) != Some("input_required") {
                return ToolResult::read(&result);
            }
            // Nobody is asked for what would not be sent on.
            if round < ROUNDS {
                answers = elicit::answers(&result, answerer).await?;
            }
        }
        Err(Failure::Broken(format!("the result of one call asks more than {ROUNDS} times")))
    }
}
