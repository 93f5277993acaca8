//! The command line from outside: the binary, on projects that each test writes for itself.
//!
//! `cargo test --release --locked --test cli NAME` runs the tests whose path contains `NAME`.
//!
//! Agents: `agent_`, `conversation`, `tool_verify`, `confirm`, `context`
//!
//! - `agent_turns`: turns of an agent, and the events around them
//! - `agent_continued`: turns that are finished after their process was killed
//! - `agent_delegation`: sub-agents
//! - `agent_services`: whole sessions with a service, in each wire format
//! - `agent_wires`: what a person sees of a turn, whole, in each wire format
//! - `agent_stalls`: a service that is silent for a while, in each wire format
//! - `agent_streams`: odd replies of a service, and the next request
//! - `agent_keys`: the key of a service, which nothing shows
//! - `agent_limits`: ends of a turn, and what remains of a turn that was ended
//! - `agent_history`: the part of a conversation that each request has
//! - `agent_results`: results of sub-agents, and their verification
//! - `agent_tasks`: tools and agents in the background
//! - `agent_budgets`: budgets of agents
//! - `agent_plugins`: agents of third parties, and agents that narrow themselves
//! - `agent_interruptions`: turns that end in the middle of a stream or of a tool, in each wire format
//! - `agent_endings`: the end of a session for its caller
//! - `agent_failures`: tools that fail an agent again and again
//! - `conversation`: a conversation with the agent at a terminal
//! - `conversation_typing`: several lines, history, typing ahead and commands in a conversation
//! - `conversation_calls`: calls that a person at a terminal sees and stops
//! - `tool_verify`: tools that verify their own results
//! - `confirm`: calls that need confirmation
//! - `context`: `harness context`: what a model would see
//!
//! Hooks: `hooks`
//!
//! - `hooks`: the hooks of an event, their order, and their joint decision
//! - `hooks_builtins`: hooks on the built-ins that a tool calls
//! - `hooks_pure`: the same for pure built-ins
//! - `hooks_events`: every event of the catalogue, `fire`, and events that scripts emit
//! - `hooks_failing`: hooks that fail
//! - `hooks_words`: text of hooks that reaches a model
//! - `hooks_guards`: what hooks may use to decide, and guards as a project would write them
//! - `hooks_pipeline`: hooks around the call of a tool
//!
//! Sessions: `sessions`
//!
//! - `sessions`: session files, and what `show` prints of them
//! - `sessions_resume`: recorded conversations that are resumed
//! - `sessions_replay`: recorded sessions that are replayed
//! - `sessions_tasks`: tasks and confirmations in session files
//!
//! Policy: `policy`, `grants`, `limits`, `walls`, `secrets`
//!
//! - `policy`: `policy show`, `diff` and `learn`
//! - `policy_layers`: the host policy, and rules that narrow a call
//! - `grants`: each capability granted, not granted, and granted for something else
//! - `limits`: what ends a call, and what must not
//! - `walls`: reports on the walls around commands and around the host
//! - `secrets`: values that scripts use by name and never see
//! - `requests`: HTTP as a script writes it
//! - `tls`: servers that a script trusts over TLS
//!
//! Commands: `call`, `code`, `arguments`, `clients`, `commands`, `output`, `terminal`, `rejected`, `wrong`, `testing`
//!
//! - `call`: how a call ends, and what it prints
//! - `code`: code mode: scripts of models and clients that call tools
//! - `ask`: questions of tools to the person at the terminal
//! - `arguments`: arguments, project and workspace
//! - `clients`: hooks of agent clients, which `fire --format` answers
//! - `content`: results that are more than a value, and progress
//! - `commands`: the other commands, and help
//! - `output`: where results go, and what happens if they cannot be written
//! - `terminal`: colors, and escaping
//! - `rejected`: what programs get of a call that was not made, and people of folders that do not exist
//! - `wrong`: input that cannot be used
//! - `testing`: the cases that artifacts carry, and `harness test`
//!
//! Editors: `lsp`
//!
//! - `lsp`: the language server, a session for each of its features
//! - `lsp_hostile`: clients and projects that mean no good
//!
//! Artifacts: `artifacts`, `listings`, `loading`, `lock`, `meta`, `parameters`, `pages`, `plugins`, `prose`
//!
//! - `artifacts`: the format of artifacts, and the grant of each
//! - `listings`: lists of artifacts; names that are replaced, used twice, or unknown
//! - `loading`: sources, bounds of loading, where the policy may be, files that nobody reads
//! - `lock`: artifacts that differ from the lock file
//! - `meta`: what a run adds to itself, and tools that call tools
//! - `parameters`: parameters and results of tools
//! - `pages`: the examples of the format's own pages
//! - `plugins`: what plugins ask for, and what they get
//! - `plugins_add`: plugins that are added, pinned, updated and removed
//! - `plugins_cases`: the cases of plugins, for their authors and for who consents
//! - `plugins_catalogues`: plugins that are looked up by name in catalogues
//! - `plugins_claude`: plugins of other programs, of which the prose comes along
//! - `plugins_grant`: what plugins ask for, granted later and taken back
//! - `plugins_git`: plugins of git repositories
//! - `plugins_indexes`: indexes of catalogues that are kept, and their end
//! - `plugins_parts`: parts of a folder that a marketplace lists, and servers of plugins that change
//! - `plugins_registry`: plugins of registries
//! - `plugins_signed`: plugins that are signed, and sources that are trusted
//! - `plugins_sigstore`: plugins with bundles of sigstore
//! - `plugins_examples`: the plugins in `examples/plugins`
//! - `plugins_sources`: artifacts of git repositories, which `artifact_sources` names
//! - `plugins_events`: events and names of others, which a plugin's hooks receive and share
//! - `prose`: prose of artifacts in prompts, and skills
//!
//! Logs and memory: `audit`, `kills`, `memory`
//!
//! - `audit`: the audit log
//! - `kills`: a host that is killed while it writes
//! - `memory`: the memory of one call
//!
//! Helpers, without tests
//!
//! - `project`: writes a project and runs the binary on it
//! - `pty`: a terminal with a person at it
//! - `editor`: an editor with the language server behind it
//! - `services`: a server that answers as the service of a model
//! - `server`: the server of the attacks, which speaks TLS as well

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where something is not as expected"
)]

#[path = "cli/agent_budgets.rs"]
mod agent_budgets;
#[path = "cli/agent_concurrency.rs"]
mod agent_concurrency;
#[path = "cli/agent_continued.rs"]
mod agent_continued;
#[path = "cli/agent_delegation.rs"]
mod agent_delegation;
#[path = "cli/agent_endings.rs"]
mod agent_endings;
#[path = "cli/agent_failures.rs"]
mod agent_failures;
#[path = "cli/agent_history.rs"]
mod agent_history;
#[path = "cli/agent_interruptions.rs"]
mod agent_interruptions;
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
#[path = "cli/agent_stalls.rs"]
mod agent_stalls;
#[path = "cli/agent_streams.rs"]
mod agent_streams;
#[path = "cli/agent_tasks.rs"]
mod agent_tasks;
#[path = "cli/agent_turns.rs"]
mod agent_turns;
#[path = "cli/agent_wires.rs"]
mod agent_wires;
#[path = "cli/arguments.rs"]
mod arguments;
#[path = "cli/artifacts.rs"]
mod artifacts;
#[path = "cli/ask.rs"]
mod ask;
#[path = "cli/audit.rs"]
mod audit;
#[path = "cli/call.rs"]
mod call;
#[path = "cli/clients.rs"]
mod clients;
#[path = "cli/code.rs"]
mod code;
#[path = "cli/commands.rs"]
mod commands;
#[path = "cli/confirm.rs"]
mod confirm;
#[path = "cli/content.rs"]
mod content;
#[path = "cli/context.rs"]
mod context;
#[path = "cli/conversation.rs"]
mod conversation;
#[path = "cli/conversation_calls.rs"]
mod conversation_calls;
#[path = "cli/conversation_typing.rs"]
mod conversation_typing;
#[path = "cli/ctx.rs"]
mod ctx;
#[path = "cli/editor.rs"]
mod editor;
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
#[path = "cli/lsp.rs"]
mod lsp;
#[path = "cli/lsp_hostile.rs"]
mod lsp_hostile;
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
#[path = "cli/plugins.rs"]
mod plugins;
#[path = "cli/plugins_add.rs"]
mod plugins_add;
#[path = "cli/plugins_cases.rs"]
mod plugins_cases;
#[path = "cli/plugins_catalogues.rs"]
mod plugins_catalogues;
#[path = "cli/plugins_claude.rs"]
mod plugins_claude;
#[path = "cli/plugins_events.rs"]
mod plugins_events;
#[path = "cli/plugins_examples.rs"]
mod plugins_examples;
#[path = "cli/plugins_git.rs"]
mod plugins_git;
#[path = "cli/plugins_grant.rs"]
mod plugins_grant;
#[path = "cli/plugins_indexes.rs"]
mod plugins_indexes;
#[path = "cli/plugins_parts.rs"]
mod plugins_parts;
#[path = "cli/plugins_registry.rs"]
mod plugins_registry;
#[path = "cli/plugins_signed.rs"]
mod plugins_signed;
#[path = "cli/plugins_sigstore.rs"]
mod plugins_sigstore;
#[path = "cli/plugins_sources.rs"]
mod plugins_sources;
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
#[path = "cli/resources.rs"]
mod resources;
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
#[path = "cli/tool_verify.rs"]
mod tool_verify;
#[path = "cli/walls.rs"]
mod walls;
#[path = "cli/wrong.rs"]
mod wrong;
