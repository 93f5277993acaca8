//! Which calls of one reply of a model overlap.

use serde_json::Value as Json;

use super::builtin::DELEGATE;
use super::chain::CallContext;
use super::code;
use harness_artifact::agent::Agent;
use harness_artifact::tool::Tool;
use harness_policy::grant::Grant;
use harness_policy::layer::Service;

/// Whether a call can run concurrently with others of its caller, which waits for all of them: its grant cannot write, or the
/// file of the tool or agent says that this does not matter. Built-in tools but `delegate`, tools that run in the background
/// anyway, and those of servers and of the embedding program, which do more than a grant says, run alone.
pub fn can_run_concurrently(place: &CallContext, name: &str, arguments: &str) -> bool {
    let (policy, registry) = (&place.loaded.parts.policy, &place.loaded.parts.registry);
    let natives = &place.loaded.parts.natives;
    let only_reads = |grant: Grant| grant.meet(&Grant::new(place.run.layers().to_vec())).is_read_only();
    // No grant describes what servers and the embedding program do for a tool or an agent that calls them.
    let is_bounded = policy.mcp.servers.is_empty() && natives.is_empty();
    let calls_no_other =
        |grant: &Grant| [Service::Meta, Service::Delegate].into_iter().all(|one| grant.decide_service(one).is_err());
    if name == DELEGATE && registry.tool(name).is_err() {
        let arguments: Json = serde_json::from_str(arguments).unwrap_or_default();
        let named = arguments.get("agent").and_then(Json::as_str).unwrap_or_default();
        let agent = registry.agents().iter().find(|agent| agent.name == named);
        let grant = |agent: &Agent| policy.grant_for(&agent.source_name, agent.capabilities.as_ref());
        return agent.is_some_and(|agent| agent.parallel || is_bounded && only_reads(grant(agent)));
    }
    let is_native = natives.iter().any(|(native, _)| native == name);
    let reads = |tool: &Tool| {
        let grant = policy.grant_of(tool);
        tool.served.is_none() && !is_native && (is_bounded || calls_no_other(&grant)) && only_reads(grant)
    };
    let joins = |tool: &Tool| !place.goes_on(tool) && (tool.parallel || reads(tool));
    match place.added_tool(name) {
        Some(added) => joins(&added.tool),
        None => code::tool(&place.loaded, name).is_none() && registry.tool(name).is_ok_and(|tool| joins(tool)),
    }
}
