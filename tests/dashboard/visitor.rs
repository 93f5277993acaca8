//! A client that keeps cookies and sends forms as a browser does, and a project whose agent calls a tool.

use std::net::TcpStream;

use crate::project::{FINE, Project};
use crate::site::Site;
use crate::web::{Reply, exchange, request};

/// A project whose agent calls a tool and answers.
pub(crate) fn agent(front: &str, said: &str) -> Project {
    let replies = format!("- tool_calls: [{{ name: it, args: {{}} }}]\n- text: {said}\n");
    Project::new()
        .policy("model: { provider: script, script: replies.yaml }\nsandbox: { fs: { read: [docs], write: [] } }\n")
        .tool("it", front, FINE)
        .tool("asks", "confirm: true\nparameters:\n  text: { type: string }\n", FINE)
        .tool(
            "reads",
            "parameters:\n  path: { type: string }\n",
            "def run(args):\n    return fs.read(args[\"path\"])\n",
        )
        .file("replies.yaml", &replies)
}

/// Someone at a browser.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    address: String,
    pub(crate) cookies: Vec<(String, String)>,
}

impl Visitor {
    pub(crate) fn new(site: &Site) -> Self {
        Self::at(site.address())
    }

    pub(crate) fn at(address: &str) -> Self {
        Self { address: address.to_owned(), cookies: Vec::new() }
    }

    /// One who has signed in with a key.
    pub(crate) fn with(site: &Site, key: &str) -> Self {
        let mut visitor = Self::new(site);
        let reply = visitor.sign_in(key);
        assert_eq!((reply.status, reply.header("location").as_str()), (303, "/dashboard"), "{reply:?}");
        visitor
    }

    pub(crate) fn sign_in(&mut self, key: &str) -> Reply {
        self.send("/dashboard/sign-in", "/dashboard/sign-in", &[("key", key)])
    }

    pub(crate) fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The cookies as a header has them.
    pub(crate) fn jar(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    /// A request with exactly these headers beside the cookies; what it sets is kept.
    pub(crate) fn ask(&mut self, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let jar = self.jar();
        let mut all = vec![("Host", "localhost"), ("Cookie", jar.as_str()), ("Content-Type", "")];
        all.extend(headers);
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let reply = exchange(&mut stream, &request(line, &all, body));
        for (name, value) in set_cookies(&reply) {
            self.cookies.retain(|(other, _)| *other != name);
            if !value.is_empty() {
                self.cookies.push((name, value));
            }
        }
        reply
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.ask(&format!("GET {path}"), &[], "")
    }

    /// The token that the forms of a page have.
    pub(crate) fn token(&mut self, page: &str) -> String {
        let reply = self.get(page);
        assert_eq!(reply.status, 200, "{page}: {reply:?}");
        token_of(&reply.body)
    }

    /// Opens a page and sends a form of it.
    pub(crate) fn send(&mut self, page: &str, to: &str, fields: &[(&str, &str)]) -> Reply {
        let token = self.token(page);
        self.post(to, &[("Origin", "http://localhost"), ("Sec-Fetch-Site", "same-origin")], &token, fields)
    }

    /// Sends a form with this token and these headers.
    pub(crate) fn post(&mut self, to: &str, headers: &[(&str, &str)], token: &str, fields: &[(&str, &str)]) -> Reply {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        if !token.is_empty() {
            form.append_pair("form", token);
        }
        form.extend_pairs(fields);
        let body = form.finish();
        let mut all = vec![("Content-Type", "application/x-www-form-urlencoded")];
        all.extend(headers);
        self.ask(&format!("POST {to}"), &all, &body)
    }
}

/// The names and values of the cookies that an answer sets.
pub(crate) fn set_cookies(reply: &Reply) -> Vec<(String, String)> {
    lines(reply, "set-cookie")
        .iter()
        .map(|line| {
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

/// The values of a header, each that is there.
pub(crate) fn lines(reply: &Reply, name: &str) -> Vec<String> {
    let pairs = reply.raw_head.lines().filter_map(|line| line.split_once(": "));
    pairs.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).collect()
}

/// The token of the first form of a page.
pub(crate) fn token_of(page: &str) -> String {
    let start = "name=\"form\" value=\"";
    let at = page.find(start).unwrap_or_else(|| panic!("no form: {page}")) + start.len();
    page[at..].split('"').next().unwrap().to_owned()
}

/// The text of an element: from the first text that is there to the next one.
pub(crate) fn between<'p>(page: &'p str, start: &str, end: &str) -> &'p str {
    let at = page.find(start).unwrap_or_else(|| panic!("no {start}: {page}")) + start.len();
    page[at..].split(end).next().unwrap()
}

/// The status of an answer, and what its page says went wrong.
pub(crate) fn refused(reply: &Reply) -> (u16, String) {
    (reply.status, between(&reply.body, "<p class=\"problem\">", "</p>").to_owned())
}
