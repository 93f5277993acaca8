//! The definitions of a server's tools, all pages of them.

use serde_json::{Value as Json, json};

use crate::era::params;
use crate::failure::Failure;
use crate::limits::PAGES;
use crate::link::Link;
use crate::message::MODERN;
use harness_artifact::definition::{Definition, MAX_TOOLS, Transport, distinct};
use harness_artifact::policy::mcp::McpServer;
use harness_artifact::third_party;

/// The tools of a server.
#[derive(Debug)]
pub(crate) struct Listed {
    /// In the order of their names.
    pub(crate) tools: Vec<Definition>,
    /// Those that clients have to leave out, and why.
    pub(crate) left_out: Vec<String>,
}

/// Reads all pages. Tools that the policy leaves out are not looked at.
///
/// # Errors
///
/// What is wrong with the listing, or with a definition.
pub(crate) async fn list(link: &Link, version: &str, server: &McpServer) -> Result<Listed, Failure> {
    let mut listing = Listing::default();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let asked = cursor.take().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
        let page = link.request("tools/list", &params(version, asked)).await?.map_err(|error| {
            let why = third_party::line(&error.message);
            Failure::Said(format!("it does not list its tools: {why} ({})", error.code))
        })?;
        cursor = listing.add(&page, |name| server.offers(name)).map_err(Failure::Broken)?;
        if cursor.is_none() {
            let has_headers = version == MODERN && server.transport() == Transport::Http;
            let listed = listing.whole(&server.name, has_headers).map_err(Failure::Broken)?;
            link.learn(&listed.tools);
            return Ok(listed);
        }
    }
    Err(Failure::Broken(format!("its tools are more than {PAGES} pages")))
}

/// The pages so far.
#[derive(Debug, Default)]
struct Listing {
    seen: usize,
    tools: Vec<Definition>,
}

impl Listing {
    /// Takes a page. Returns where the next one is.
    fn add(&mut self, page: &Json, offers: impl Fn(&str) -> bool) -> Result<Option<String>, String> {
        let tools = page.get("tools").and_then(Json::as_array).ok_or("it does not list its tools")?;
        self.seen = self.seen.saturating_add(tools.len());
        if self.seen > MAX_TOOLS {
            return Err(format!("it has more than {MAX_TOOLS} tools"));
        }
        for tool in tools {
            // What has no name is left in, to be refused.
            if tool.get("name").and_then(Json::as_str).is_none_or(&offers) {
                self.tools.push(Definition::read(tool.clone())?);
            }
        }
        match page.get("nextCursor") {
            None | Some(Json::Null) => Ok(None),
            Some(Json::String(cursor)) => Ok(Some(cursor.clone())),
            Some(_) => Err("its `nextCursor` is no text".to_owned()),
        }
    }

    /// `has_headers` is whether arguments may be headers too: then a tool is left out whose headers are not as the protocol
    /// wants them.
    fn whole(self, server: &str, has_headers: bool) -> Result<Listed, String> {
        let (mut tools, mut left_out) = (Vec::new(), Vec::new());
        distinct(server, &self.tools)?;
        for tool in self.tools {
            match tool.mirrored().map(|_| ()).or_else(|why| if has_headers { Err(why) } else { Ok(()) }) {
                Ok(()) => tools.push(tool),
                Err(why) => left_out.push(why),
            }
        }
        tools.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(Listed { tools, left_out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Json {
        json!({"name": name, "inputSchema": {"type": "object"}})
    }

    fn listed(pages: &[Json], offers: impl Fn(&str) -> bool) -> Result<Vec<String>, String> {
        let mut listing = Listing::default();
        for page in pages {
            listing.add(page, &offers)?;
        }
        Ok(listing.whole("s", false)?.tools.iter().map(|tool| tool.name().to_owned()).collect())
    }

    #[test]
    fn tools_with_wrong_headers_are_left_out_where_headers_are_sent() {
        let with = |name: &str, header: &str| {
            let region = json!({"type": "string", "x-mcp-header": header});
            json!({"name": name, "inputSchema": {"type": "object", "properties": {"region": region}}})
        };
        for (has_headers, names, left_out) in [(true, vec!["a"], 1), (false, vec!["a", "b"], 0)] {
            let mut listing = Listing::default();
            listing.add(&json!({"tools": [with("b", "not a header"), with("a", "Region")]}), |_| true).unwrap();
            let listed = listing.whole("s", has_headers).unwrap();
            assert_eq!(listed.tools.iter().map(Definition::name).collect::<Vec<_>>(), names);
            assert_eq!(listed.left_out.len(), left_out);
            assert!(listed.left_out.iter().all(|why| why.starts_with("the tool `b`: `x-mcp-header` of `region`")));
        }
    }

    #[test]
    fn pages_are_one_listing() {
        let pages = [json!({"tools": [tool("b")], "nextCursor": "1"}), json!({"tools": [tool("a")]})];
        assert_eq!(listed(&pages, |_| true), Ok(vec!["a".to_owned(), "b".to_owned()]));
        let twice = [json!({"tools": [tool("b")]}), json!({"tools": [tool("b")]})];
        assert_eq!(listed(&twice, |_| true), Err("it has two tools of the name `b`".to_owned()));
        let many = [json!({"tools": vec![tool("b"); MAX_TOOLS]}), json!({"tools": [tool("a")]})];
        assert_eq!(listed(&many, |_| true), Err("it has more than 1000 tools".to_owned()));
    }

    #[test]
    fn what_the_policy_leaves_out_is_not_looked_at() {
        let pages = [json!({"tools": [tool("a"), {"name": "b", "inputSchema": 1}]})];
        assert_eq!(listed(&pages, |name| name == "a"), Ok(vec!["a".to_owned()]));
        assert!(listed(&pages, |_| true).is_err());
        // The name itself cannot hide.
        assert!(listed(&[json!({"tools": [{"inputSchema": {}}]})], |_| false).is_err());
        for (page, why) in [
            (json!({}), "it does not list its tools"),
            (json!({"tools": [], "nextCursor": 1}), "its `nextCursor` is no text"),
        ] {
            assert_eq!(listed(&[page], |_| true), Err(why.to_owned()));
        }
    }
}
