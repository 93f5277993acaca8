//! A server that is killed at random moments while clients write: what was acknowledged is there after the next start, and
//! what was under way is there whole or not at all.
//!
//! `HARNESS_SERVER_KILLS` says how often it is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::project::Project;
use crate::site::{Site, archive};
use crate::web::request;

/// Kills where the variable says nothing.
const KILLS: u64 = 50;
/// Acknowledged writes of a round, at most, before the kill.
const WRITES: u64 = 80;
/// Time after the last of them, at most, in microseconds: a kill is not always just after an answer.
const LATER: u64 = 5_000;

/// Appends a line to a file, once for each call.
const APPEND: &str = "def run(args):\n    fs.append('log', args['line'] + '\\n')\n    return args['line']\n";

/// What a client needs to ask a server, which may die at any moment.
struct Client {
    address: String,
    socket: PathBuf,
    operator: String,
    acme: String,
    beside: String,
}

/// A whole answer.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Client {
    /// The answer to a request, or nothing if the server died before it was whole.
    fn ask(&self, key: &str, line: &str, more: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
        let bearer = format!("Bearer {key}");
        let length = body.len().to_string();
        let mut headers = vec![("Authorization", bearer.as_str()), ("Content-Length", length.as_str())];
        headers.extend(more);
        let mut bytes = request(line, &headers, "");
        bytes.extend(body);
        if line.contains(" /admin/") {
            answer(UnixStream::connect(&self.socket).ok()?, &bytes)
        } else {
            answer(TcpStream::connect(&self.address).ok()?, &bytes)
        }
    }

    /// The same of a server that lives.
    fn alive(&self, key: &str, line: &str, body: &[u8]) -> Answer {
        self.ask(key, line, &[], body).unwrap_or_else(|| panic!("no answer to {line}"))
    }

    fn get(&self, key: &str, path: &str) -> Answer {
        self.alive(key, &format!("GET {path}"), b"")
    }
}

fn answer(mut stream: impl Read + Write, bytes: &[u8]) -> Option<Answer> {
    stream.write_all(bytes).ok()?;
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let head = head.to_ascii_lowercase();
    let length: usize = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    (body.len() == length).then(|| Answer { status, head: head.clone(), body: body.to_owned() })
}

/// A client that writes, and knows what was acknowledged.
trait Writer: Send {
    /// Writes once. Returns whether it was acknowledged; otherwise the server is dead.
    fn write(&mut self, client: &Client) -> Option<()>;
    /// Compares what there is after a start with what was acknowledged, and takes over what was under way.
    fn compare(&mut self, client: &Client);
}

/// A value that is replaced by the next one.
#[derive(Default)]
struct Value {
    number: u64,
    acknowledged: Option<String>,
    under_way: Option<String>,
}

impl Value {
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn begin(&mut self, value: &str) {
        self.under_way = Some(value.to_owned());
    }

    fn acknowledge(&mut self) {
        self.acknowledged = self.under_way.take();
    }

    fn compare(&mut self, what: &str, found: Option<String>) {
        let (acknowledged, under_way) = (self.acknowledged.clone(), self.under_way.take());
        assert!(
            found == acknowledged || under_way.is_some() && found == under_way,
            "{what}: {found:?}, acknowledged {acknowledged:?}, under way {under_way:?}"
        );
        self.acknowledged = found;
    }
}

#[derive(Default)]
struct Files([Value; 4]);

impl Writer for Files {
    fn write(&mut self, client: &Client) -> Option<()> {
        let at = (self.0.iter().map(|value| value.number).sum::<u64>() % 4) as usize;
        let text = format!("{at}-{}", self.0[at].next()).repeat(500);
        self.0[at].begin(&text);
        let answer =
            client.ask(&client.acme, &format!("PUT /v1/files/f{at}"), &[], json!(text).to_string().as_bytes())?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.0[at].acknowledge();
        Some(())
    }

    fn compare(&mut self, client: &Client) {
        for (at, value) in self.0.iter_mut().enumerate() {
            let answer = client.get(&client.acme, &format!("/v1/files/f{at}"));
            let found = (answer.status == 200).then(|| serde_json::from_str(&answer.body).unwrap());
            assert!(matches!(answer.status, 200 | 404), "{}", answer.body);
            value.compare(&format!("f{at}"), found);
        }
    }
}

#[derive(Default)]
struct Policy(Value);

impl Writer for Policy {
    fn write(&mut self, client: &Client) -> Option<()> {
        let rules = format!("fs: {{ read: [p{}] }}", self.0.next());
        self.0.begin(&rules);
        let body = json!({"policy": rules}).to_string();
        let answer = client.ask(&client.operator, "PATCH /admin/v1/tenants/ruled", &[], body.as_bytes())?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.0.acknowledge();
        Some(())
    }

    fn compare(&mut self, client: &Client) {
        let shown = client.get(&client.operator, "/admin/v1/tenants/ruled").json();
        self.0.compare("policy", shown["policy"].as_str().map(str::to_owned));
    }
}

#[derive(Default)]
struct Uploads(Value);

impl Writer for Uploads {
    fn write(&mut self, client: &Client) -> Option<()> {
        let number = self.0.next().to_string();
        let project = Project::with_script(&format!("def run(args):\n    return '{number}'\n"));
        self.0.begin(&number);
        let answer = client.ask(&client.beside, "PUT /v1/project", &[], &archive(&project))?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.0.acknowledge();
        Some(())
    }

    fn compare(&mut self, client: &Client) {
        let answer = client.alive(&client.beside, "POST /v1/tools/it/calls", b"{}");
        self.0.compare(
            "project",
            Some(answer.json()["result"].as_str().unwrap_or_else(|| panic!("{}", answer.body)).to_owned()),
        );
    }
}

/// Names that come and go: those of secrets.
#[derive(Default)]
struct Secrets {
    number: u64,
    names: BTreeSet<String>,
    under_way: Option<String>,
}

impl Writer for Secrets {
    fn write(&mut self, client: &Client) -> Option<()> {
        self.number += 1;
        let oldest = self.names.first().cloned().filter(|_| self.names.len() > 4);
        let (method, name) = match &oldest {
            Some(name) => ("DELETE", name.clone()),
            None => ("PUT", format!("S{:08}", self.number)),
        };
        self.under_way = Some(name.clone());
        let body = if oldest.is_some() { String::new() } else { json!({"value": name}).to_string() };
        let answer = client.ask(&client.acme, &format!("{method} /v1/secrets/{name}"), &[], body.as_bytes())?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.under_way = None;
        if oldest.is_some() {
            self.names.remove(&name)
        } else {
            self.names.insert(name)
        };
        Some(())
    }

    fn compare(&mut self, client: &Client) {
        let shown = client.get(&client.acme, "/v1/secrets").json();
        let found: BTreeSet<String> =
            shown["secrets"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        let differ: Vec<String> = found.symmetric_difference(&self.names).cloned().collect();
        let under_way: Vec<String> = self.under_way.take().into_iter().collect();
        assert!(differ.is_empty() || differ == under_way, "{differ:?}, under way {under_way:?}");
        self.names = found;
    }
}

/// Keys that come and go.
#[derive(Default)]
struct Keys {
    there: BTreeMap<String, String>,
    /// Removed since the last start, and no longer accepted.
    gone: Vec<String>,
    leaving: Option<String>,
}

impl Writer for Keys {
    fn write(&mut self, client: &Client) -> Option<()> {
        if self.there.len() > 4 {
            let (id, _) = self.there.first_key_value().map(|(id, key)| (id.clone(), key.clone())).unwrap();
            self.leaving = Some(id.clone());
            let answer = client.ask(&client.acme, &format!("DELETE /v1/keys/{id}"), &[], b"")?;
            assert_eq!(answer.status, 200, "{}", answer.body);
            self.leaving = None;
            self.gone.extend(self.there.remove(&id));
            return Some(());
        }
        let body = json!({"role": "caller", "label": "of the kills"}).to_string();
        let answer = client.ask(&client.acme, "POST /v1/keys", &[], body.as_bytes())?;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let made = answer.json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        self.there.insert(text("id"), text("key"));
        Some(())
    }

    fn compare(&mut self, client: &Client) {
        for key in self.gone.drain(..) {
            assert_eq!(client.get(&key, "/v1/tools").status, 401, "a key that was removed is accepted");
        }
        let leaving = self.leaving.take();
        self.there.retain(|id, key| {
            let status = client.get(key, "/v1/tools").status;
            assert!(status == 200 || leaving.as_ref() == Some(id) && status == 401, "{id}: {status}");
            status == 200
        });
        // Nobody has the text of one whose answer was lost.
        let listed = client.get(&client.acme, "/v1/keys").json();
        for key in listed["keys"].as_array().unwrap() {
            let id = key["id"].as_str().unwrap();
            if key["label"] == "of the kills" && !self.there.contains_key(id) {
                assert_eq!(client.alive(&client.acme, &format!("DELETE /v1/keys/{id}"), b"").status, 200);
            }
        }
    }
}

/// Asynchronous calls: those that began, and what those returned that ended.
#[derive(Default)]
struct Runs(BTreeMap<String, Option<Json>>);

impl Writer for Runs {
    fn write(&mut self, client: &Client) -> Option<()> {
        let body = json!({"arguments": {"line": "run"}}).to_string();
        let asynchronous = [("Prefer", "respond-async")];
        let answer = client.ask(&client.acme, "POST /v1/tools/echo/calls", &asynchronous, body.as_bytes())?;
        assert_eq!(answer.status, 202, "{}", answer.body);
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        self.0.insert(id.clone(), None);
        loop {
            let shown = client.ask(&client.acme, &format!("GET /v1/runs/{id}"), &[], b"")?;
            assert_eq!(shown.status, 200, "{}", shown.body);
            let record = shown.json();
            if record["state"] != "running" {
                assert_eq!(
                    (&record["state"], &record["result"]["result"]),
                    (&json!("completed"), &json!("run")),
                    "{record}"
                );
                self.0.insert(id, Some(record));
                return Some(());
            }
            std::thread::yield_now();
        }
    }

    fn compare(&mut self, client: &Client) {
        for (id, ended) in std::mem::take(&mut self.0) {
            let until = Instant::now() + Duration::from_secs(60);
            let record = loop {
                let shown = client.get(&client.acme, &format!("/v1/runs/{id}"));
                assert_eq!(shown.status, 200, "{id}: {}", shown.body);
                let record = shown.json();
                if record["state"] != "running" {
                    break record;
                }
                assert!(Instant::now() < until, "{record}");
                std::thread::yield_now();
            };
            match ended {
                Some(ended) => assert_eq!(record, ended),
                None => assert!(matches!(record["state"].as_str(), Some("interrupted" | "completed")), "{record}"),
            }
        }
    }
}

/// Calls with an `Idempotency-Key`, each of which writes a line.
#[derive(Default)]
struct Once {
    number: u64,
    answers: Vec<(String, String)>,
    under_way: Option<String>,
}

impl Once {
    fn send(client: &Client, key: &str) -> Option<Answer> {
        let body = json!({"arguments": {"line": key}}).to_string();
        client.ask(&client.acme, "POST /v1/tools/append/calls", &[("Idempotency-Key", key)], body.as_bytes())
    }
}

impl Writer for Once {
    fn write(&mut self, client: &Client) -> Option<()> {
        self.number += 1;
        let key = format!("k{}", self.number);
        self.under_way = Some(key.clone());
        let answer = Self::send(client, &key)?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.answers.push((key, answer.body));
        self.under_way = None;
        Some(())
    }

    fn compare(&mut self, client: &Client) {
        for (key, body) in &self.answers {
            let again = Self::send(client, key).unwrap();
            assert_eq!((again.status, &again.body), (200, body));
            assert!(again.head.contains("idempotency-replayed: true"), "{}", again.head);
        }
        let unknown = self.under_way.take().map(|key| {
            let again = Self::send(client, &key).unwrap();
            let kind = again.json()["type"].clone();
            assert!(again.status == 200 || kind == "urn:harness:problem:idempotency_unknown", "{}", again.body);
            (key, again.status == 200)
        });
        let log = client.get(&client.acme, "/v1/files/log");
        let log = if log.status == 404 { String::new() } else { log.body };
        let count = |key: &str| log.lines().filter(|line| *line == key).count();
        for (key, _) in self.answers.drain(..) {
            assert_eq!(count(&key), 1, "{key}");
        }
        if let Some((key, is_done)) = unknown {
            assert!(if is_done { count(&key) == 1 } else { count(&key) <= 1 }, "{key}: {}", count(&key));
        }
    }
}

/// Numbers that are different each time.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

#[test]
fn a_kill_at_any_moment_loses_no_acknowledged_write() {
    let kills = std::env::var("HARNESS_SERVER_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let mut random = Random(Instant::now().elapsed().as_nanos() as u64 ^ u64::from(std::process::id()) << 20 | 1);
    let mut site = Site::with_config("classes: { default: { requests: { per_minute: 1000000, burst: 1000000 } } }\n");
    let project =
        Project::new().tool("append", "parameters: { line: { type: string, required: true } }\n", APPEND).tool(
            "echo",
            "parameters: { line: { type: string, required: true } }\n",
            "def run(args):\n    return args['line']\n",
        );
    let (acme, beside) = (
        site.tenant("acme", &project),
        site.tenant("beside", &Project::with_script("def run(args):\n    return '0'\n")),
    );
    // Another one than that of the uploads: two changes of a tenant at one time are a conflict.
    assert_eq!(site.admin("POST /admin/v1/tenants", &json!({"id": "ruled"})).status, 201);
    let operator = site.operator();
    let first = Value { acknowledged: Some("0".to_owned()), ..Value::default() };
    let mut writers: Vec<Box<dyn Writer>> = vec![
        Box::new(Files::default()),
        Box::new(Policy::default()),
        Box::new(Uploads(first)),
        Box::new(Secrets::default()),
        Box::new(Keys::default()),
        Box::new(Runs::default()),
        Box::new(Once::default()),
    ];
    let client = |site: &Site| Client {
        address: site.address().to_owned(),
        socket: site.data().join("admin.sock"),
        operator: operator.clone(),
        acme: acme.key.clone(),
        beside: beside.key.clone(),
    };
    let mut all = 0;
    for _ in 0..kills {
        let (most, later) = (random.below(WRITES), Duration::from_micros(random.below(LATER)));
        let written = AtomicU64::new(0);
        let asked = client(&site);
        let work = |writer: &mut Box<dyn Writer>| {
            while writer.write(&asked).is_some() {
                written.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = writers.iter_mut().map(|writer| scope.spawn(|| work(writer))).collect();
            // One that has ended failed: the server lives.
            while written.load(Ordering::Relaxed) < most
                && !threads.iter().any(std::thread::ScopedJoinHandle::is_finished)
            {
                std::thread::yield_now();
            }
            let reached = Instant::now();
            while reached.elapsed() < later {
                std::hint::spin_loop();
            }
            site.kill();
        });
        all += written.load(Ordering::Relaxed);
        site = site.again();
        let asked = client(&site);
        writers.iter_mut().for_each(|writer| writer.compare(&asked));
    }
    assert!(all > kills, "{all} writes in {kills} rounds");
    let (code, out, err) = site.harness(&["admin", "backup", "end", "--data", "data", "--verify"], "");
    assert_eq!(code, 0, "{out}{err}");
}
