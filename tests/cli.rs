//! The command line from outside: the binary on projects that each test writes for itself.
//!
//! - `project`: writes a project and runs the binary on it
//! - `agent_turns`: turns of an agent, and the events around them
//! - `agent_delegation`: sub-agents
//! - `services`: what answers in place of a model's service
//! - `agent_services`: whole sessions with one, in each wire format
//! - `agent_streams`: odd replies of one, and what goes back to it
//! - `agent_keys`: a service's key, which nothing shows
//! - `agent_limits`: when a turn is over, and what is left of one that was ended
//! - `agent_history`: what of a conversation goes into each request
//! - `agent_results`: what comes back from sub-agents, and who judges it
//! - `conversation`: one with the agent, at a terminal
//! - `conversation_calls`: what a person at a terminal sees of calls, and how they stop them
//! - `agent_tasks`: what is not waited for
//! - `agent_budgets`: what agents may use, and no more
//! - `agent_plugins`: agents of third parties, and those that narrow themselves
//! - `agent_endings`: how a session ends for whoever ran it
//! - `agent_failures`: tools that fail an agent again and again
//! - `confirm`: calls that a person has to confirm
//! - `context`: what a model would see
//! - `prose`: prose of artifacts in prompts, and skills
//! - `pty`: a terminal and a person at it
//! - `call`: how a call ends, and what it prints
//! - `arguments`: how it is given arguments, project and workspace
//! - `commands`: the other commands, and help
//! - `terminal`: colors, and what is escaped
//! - `requests`: HTTP as a script writes it
//! - `rejected`: what a program is told of what was not done, and a person of folders that are not there
//! - `server`: the server of the attacks, which speaks TLS as well
//! - `tls`: whom a script talks to over TLS
//! - `wrong`: input that cannot be used
//! - `kills`: the host is killed while it writes
//! - `limits`: what ends a call, and what must not
//! - `grants`: each capability granted, not granted, and granted for something else
//! - `artifacts`: the format of artifacts, and what each is granted
//! - `listings`: what is there, told; names that are replaced, taken twice, or refer to nothing
//! - `meta`: what a run adds to itself, and tools that call tools
//! - `hooks`: which hooks an event is for, their order, and what their decisions come to
//! - `hooks_builtins`: what hooks hear of the built-ins that a tool calls
//! - `hooks_pure`: the same of built-ins that reach nothing
//! - `hooks_events`: every event of the catalogue, `fire`, and events that scripts emit
//! - `hooks_failing`: hooks that fail
//! - `hooks_words`: whose words reach a model
//! - `hooks_guards`: what hooks may use to decide, and guards as a project would write them
//! - `hooks_pipeline`: hooks around the call of a tool
//! - `lock`: artifacts stay what they were when somebody looked at them
//! - `secrets`: what scripts use by name and never see
//! - `audit`: the record of what was called and decided
//! - `sessions`: the record of a session, and what is told of it
//! - `sessions_resume`: recorded conversations that are gone on with
//! - `sessions_replay`: recorded sessions that are run again
//! - `sessions_tasks`: tasks, confirmations and what nobody waited for, in records
//! - `walls`: what is told of the walls around commands and around the host
//! - `policy`: what is granted, what a new policy allows, what a call needs
//! - `policy_layers`: the machine's policy, and what a call is narrowed by
//! - `testing`: the cases that artifacts carry, and `harness test`
//! - `output`: where results go, and what is told where they cannot be written
//! - `pages`: the examples of the format's own pages, as they are

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where something is not as expected"
)]

#[path = "cli/agent_budgets.rs"]
mod agent_budgets;
#[path = "cli/agent_delegation.rs"]
mod agent_delegation;
#[path = "cli/agent_endings.rs"]
mod agent_endings;
#[path = "cli/agent_failures.rs"]
mod agent_failures;
#[path = "cli/agent_history.rs"]
mod agent_history;
#[path = "cli/agent_keys.rs"]
mod agent_keys;
#[path = "cli/agent_limits.rs"]
mod agent_limits;
#[path = "cli/agent_plugins.rs"]
mod agent_plugins;
#[path = "cli/agent_results.rs"]
mod agent_results;
#[path = "cli/agent_services.rs"]
mod agent_services;
#[path = "cli/agent_streams.rs"]
mod agent_streams;
#[path = "cli/agent_tasks.rs"]
mod agent_tasks;
#[path = "cli/agent_turns.rs"]
mod agent_turns;
#[path = "cli/arguments.rs"]
mod arguments;
#[path = "cli/artifacts.rs"]
mod artifacts;
#[path = "cli/audit.rs"]
mod audit;
#[path = "cli/call.rs"]
mod call;
#[path = "cli/commands.rs"]
mod commands;
#[path = "cli/confirm.rs"]
mod confirm;
#[path = "cli/context.rs"]
mod context;
#[path = "cli/conversation.rs"]
mod conversation;
#[path = "cli/conversation_calls.rs"]
mod conversation_calls;
#[path = "cli/grants.rs"]
mod grants;
#[path = "cli/hooks.rs"]
mod hooks;
#[path = "cli/hooks_builtins.rs"]
mod hooks_builtins;
#[path = "cli/hooks_events.rs"]
mod hooks_events;
#[path = "cli/hooks_failing.rs"]
mod hooks_failing;
#[path = "cli/hooks_guards.rs"]
mod hooks_guards;
#[path = "cli/hooks_pipeline.rs"]
mod hooks_pipeline;
#[path = "cli/hooks_pure.rs"]
mod hooks_pure;
#[path = "cli/hooks_words.rs"]
mod hooks_words;
#[path = "cli/kills.rs"]
mod kills;
#[path = "cli/limits.rs"]
mod limits;
#[path = "cli/listings.rs"]
mod listings;
#[path = "cli/loading.rs"]
mod loading;
#[path = "cli/lock.rs"]
mod lock;
#[path = "cli/memory.rs"]
mod memory;
#[path = "cli/meta.rs"]
mod meta;
#[path = "cli/output.rs"]
mod output;
#[path = "cli/pages.rs"]
mod pages;
#[path = "cli/parameters.rs"]
mod parameters;
#[path = "cli/policy.rs"]
mod policy;
#[path = "cli/policy_layers.rs"]
mod policy_layers;
#[path = "cli/project.rs"]
mod project;
#[path = "cli/prose.rs"]
mod prose;
#[path = "cli/pty.rs"]
mod pty;
#[path = "cli/rejected.rs"]
mod rejected;
#[path = "cli/requests.rs"]
mod requests;
#[path = "cli/secrets.rs"]
mod secrets;
#[path = "attacks/server.rs"]
mod server;
#[path = "cli/services.rs"]
mod services;
#[path = "cli/sessions.rs"]
mod sessions;
#[path = "cli/sessions_replay.rs"]
mod sessions_replay;
#[path = "cli/sessions_resume.rs"]
mod sessions_resume;
#[path = "cli/sessions_tasks.rs"]
mod sessions_tasks;
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/testing.rs"]
mod testing;
#[path = "cli/tls.rs"]
mod tls;
#[path = "cli/walls.rs"]
mod walls;
#[path = "cli/wrong.rs"]
mod wrong;
