//! What leaves the machine for a tenant: what counts, and what happens once the budget of it is used up.
//!
//! Tenants reach public addresses alone. So each test has a network of its own, in which one of those leads to the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use harness_testing::skip::{Need, skipped};
use harness_wall::Offers;
use rustix::process::Signal;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::{Value as Json, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::project::Project;
use crate::site::{Site, Tenant, problem};

/// The public address of the tests.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
/// The ports of services there, and one that nothing listens at.
const PORTS: [u16; 2] = [8001, 8002];
const CLOSED: u16 = 8003;
/// What a command sends.
const MEGABYTE: u64 = 1_000_000;
/// Longer than anything here takes, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does this in a network of its own, where the public address leads to this machine.
fn in_own_network(test: impl FnOnce() + Send) {
    // Its own for this thread and what it starts.
    let name = std::thread::current().name().unwrap_or("egress").to_owned();
    std::thread::scope(|scope| {
        let work = || {
            if !skipped(Need::Namespaces, own_network().is_ok()) {
                test();
            }
        };
        let there = std::thread::Builder::new().name(name).spawn_scoped(scope, work).unwrap();
        if let Err(panic) = there.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

#[expect(unsafe_code, reason = "no library sets up the network of a thread")]
fn own_network() -> std::io::Result<()> {
    // SAFETY: of what this thread shares with others, it only stops sharing its network.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let request = |name: &str, call: libc::Ioctl, value: libc::__c_anonymous_ifr_ifru| {
        let mut ifr_name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
        ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte.cast_signed());
        let request = libc::ifreq { ifr_name, ifr_ifru: value };
        // SAFETY: the kernel reads the request, which is whole.
        let done = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), call, &request) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    let flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap();
    request("lo", libc::SIOCSIFFLAGS, libc::__c_anonymous_ifr_ifru { ifru_flags: flags })?;
    let address = libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap(),
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(PUBLIC.octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: an address of this family has this form, and both have 16 bytes.
    let address = unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(address) };
    request("lo:1", libc::SIOCSIFADDR, libc::__c_anonymous_ifr_ifru { ifru_addr: address })
}

/// A service at the public address. It says what each connection has sent, once that has ended or was answered.
struct Service {
    port: u16,
    got: Receiver<Vec<u8>>,
}

impl Service {
    /// Takes connections, each by this.
    fn taking(take: impl Fn(&mut BufReader<TcpStream>) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = PORTS.iter().find_map(|port| TcpListener::bind((PUBLIC, *port)).ok()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let ((sender, got), take) = (channel(), Arc::new(take));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (sender, take) = (sender.clone(), take.clone());
                std::thread::spawn(move || {
                    let sent = take(&mut BufReader::new(stream.unwrap()));
                    let _ = sender.send(sent);
                });
            }
        });
        Self { port, got }
    }

    /// Answers requests over HTTP: `/moved` with a redirect, others with this text.
    fn answering(text: &'static str) -> Self {
        Self::taking(move |stream| {
            let sent = request(stream);
            let is_moved = sent.starts_with(b"POST /moved ");
            let status = if is_moved { "307 Moved\r\nlocation: /there" } else { "200 OK" };
            let length = text.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
            );
            let _ = stream.get_mut().write_all(answer.as_bytes());
            let _ = stream.get_mut().write_all(text.as_bytes());
            sent
        })
    }

    /// Takes all that a connection sends, and says so once that is a megabyte.
    fn swallowing() -> Self {
        Self::taking(|stream| {
            let mut all = Vec::new();
            let _ = stream.by_ref().take(MEGABYTE).read_to_end(&mut all);
            let _ = stream.get_mut().write_all(b"all of it\n");
            all
        })
    }

    fn url(&self, path: &str) -> String {
        format!("http://{PUBLIC}:{}{path}", self.port)
    }

    /// What the next connection has sent.
    fn next(&self) -> Vec<u8> {
        self.got.recv_timeout(PATIENCE).unwrap()
    }
}

/// Reads a request, with as much of a body as it says.
fn request(stream: &mut BufReader<TcpStream>) -> Vec<u8> {
    let (mut all, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap() == 0 {
            return all;
        }
        all.extend(line.bytes());
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    all.extend(body);
    all
}

/// A server whose classes let tenants use the network: `small` has these budgets, `default` has none.
fn site(budgets: &str) -> Site {
    let class = "network: { allowed_domains: ['8.8.8.8:8001', '8.8.8.8:8002', '8.8.8.8:8003'] }\nsandbox: { exec: { allow: [bash], network: true }, env: [KEY] }\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("class.yaml"), class).unwrap();
    let classes =
        format!("default: {{ policy: class.yaml }}, small: {{ policy: class.yaml, budgets: {{ {budgets} }} }}");
    std::fs::write(folder.path().join("serve.yaml"), format!("classes: {{ {classes} }}\n")).unwrap();
    Site::start(Arc::new(folder), &[])
}

/// A tool that sends a body to a URL at one of these ports, so often.
fn sending(ports: &[u16]) -> Project {
    let script = "def run(args):\n    for _ in range(args['times']):\n        http.request('POST', args['url'], 'x' * args['bytes'], {'x-of-test': '12345'})\n    return 'sent'\n";
    let front = "timeout_ms: 60000\nparameters: { url: { type: string }, bytes: { type: integer }, times: { type: integer, default: 1 } }\n";
    let hosts: Vec<String> = ports.iter().map(|port| format!("'{PUBLIC}:{port}'")).collect();
    let policy = format!("network: {{ allowed_domains: [{}] }}\n", hosts.join(", "));
    Project::new().policy(&policy).tool("send", front, script)
}

/// What a request of it counts: method, URL, header and body.
fn counted(url: &str, bytes: usize) -> u64 {
    ("POST".len() + url.len() + "x-of-test12345".len() + bytes) as u64
}

fn budget(site: &Site, tenant: &Tenant, name: &str) -> Json {
    let usage = site.get(&tenant.key, "/v1/usage").json();
    usage["budgets"].as_array().unwrap().iter().find(|one| one["budget"] == name).cloned().unwrap()
}

fn used(site: &Site, tenant: &Tenant) -> u64 {
    budget(site, tenant, "egress_per_day")["used"].as_u64().unwrap()
}

/// That a budget is used up, as it is said in the middle of something.
fn used_up(site: &Site, tenant: &Tenant, limit: u64) -> String {
    let resets = budget(site, tenant, "egress_per_day")["resets"].as_i64().unwrap();
    let until = OffsetDateTime::from_unix_timestamp(resets / 1000).unwrap().format(&Rfc3339).unwrap();
    let class = &tenant.id;
    format!(
        "the budget `egress_per_day` of {limit} is used up, set by the class `{class}` of the tenant, until {until}"
    )
}

fn sent_by_all(site: &Site) -> u64 {
    let metrics = site.admin("GET /metrics", &Json::Null).body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("harness_egress_bytes_total "));
    line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

#[test]
fn requests_of_scripts_count_by_their_parts_and_the_first_over_the_budget_is_the_last() {
    in_own_network(|| {
        let service = Service::answering("{}");
        let url = service.url("/in");
        let one = counted(&url, 1000);
        let limit = 3 * one - 1;
        let site = site(&format!("egress_per_day: {limit}, egress_per_month: 1000000"));
        let tenant = |id: &str| site.tenant_of(id, id, &sending(&[service.port]));
        let (small, other) = (tenant("small"), tenant("default"));
        let send = |site: &Site, tenant: &Tenant, times: u32| {
            site.call(&tenant.key, "send", json!({"url": url, "bytes": 1000, "times": times}))
        };
        assert_eq!(send(&site, &small, 1).json()["result"], "sent");
        assert!(service.next().ends_with(&[b'x'; 1000]));
        let day = budget(&site, &small, "egress_per_day");
        assert_eq!((&day["used"], &day["limit"], &day["unit"]), (&json!(one), &json!(limit), &json!("bytes")));
        assert_eq!(budget(&site, &small, "egress_per_month")["used"], json!(one));
        // Of five, two are sent: the second goes over. The third is refused, in the middle of the call.
        let stopped = send(&site, &small, 5).json();
        assert_eq!(stopped["outcome"], "denied", "{stopped}");
        let message = stopped["error"]["message"].as_str().unwrap();
        assert!(message.contains(&used_up(&site, &small, limit)), "{message}");
        drop((service.next(), service.next()));
        assert!(service.got.try_recv().is_err());
        assert_eq!(used(&site, &small), 3 * one);
        // The next call is not made, as with every budget.
        let refused = send(&site, &small, 1);
        assert_eq!(problem(&refused), (429, "budget_exceeded".to_owned()));
        let json = refused.json();
        assert_eq!(
            (&json["limit"], &json["set_by"], &json["resets"]),
            (&json!("egress_per_day"), &json!("the class of the tenant"), &day["resets"])
        );
        assert!(refused.header("retry-after").parse::<u64>().unwrap() <= 86_400);
        // It is another tenant's no concern, and one without a budget is counted too.
        assert_eq!(send(&site, &other, 5).json()["result"], "sent");
        assert_eq!((used(&site, &other), sent_by_all(&site)), (5 * one, 8 * one));
        // After an end in order it is what it was.
        site.signal(Signal::TERM);
        let site = site.again();
        assert_eq!((used(&site, &small), used(&site, &other)), (3 * one, 5 * one));
        assert_eq!(problem(&send(&site, &small, 1)), (429, "budget_exceeded".to_owned()));
    });
}

#[test]
fn redirects_and_requests_that_fail_or_are_canceled_count() {
    in_own_network(|| {
        let service = Service::answering("{}");
        let silent = Service::taking(|stream| {
            let sent = request(stream);
            // Until the client is gone.
            let _ = stream.read_to_end(&mut Vec::new());
            sent
        });
        let site = site("egress_per_day: 1000000");
        let project = sending(&[service.port, silent.port, CLOSED]);
        let arguments = |url: &str| json!({"url": url, "bytes": 10});
        let moved = site.tenant_of("small", "small", &project);
        assert_eq!(site.result(&moved.key, "send", arguments(&service.url("/moved"))), "sent");
        let both = counted(&service.url("/moved"), 10) + counted(&service.url("/there"), 10);
        assert_eq!(used(&site, &moved), both);
        // Where no server is, it is handed over all the same.
        let failed = site.tenant_of("failed", "small", &project);
        let nowhere = format!("http://{PUBLIC}:{CLOSED}/in");
        assert_eq!(site.call(&failed.key, "send", arguments(&nowhere)).json()["outcome"], "failed");
        assert_eq!(used(&site, &failed), counted(&nowhere, 10));
        // What the policy refuses is not.
        let refused = site.call(&failed.key, "send", arguments(&format!("http://{PUBLIC}/in"))).json();
        assert_eq!((&refused["outcome"], used(&site, &failed)), (&json!("denied"), counted(&nowhere, 10)), "{refused}");
        // Nobody waits for this answer any more.
        let canceled = site.tenant_of("canceled", "small", &project);
        let body = json!({"arguments": arguments(&silent.url("/in"))}).to_string();
        let stream = site.stream(&canceled.key, "POST /v1/tools/send/calls", "", &body);
        while used(&site, &canceled) == 0 {
            std::thread::yield_now();
        }
        stream.get_ref().shutdown(Shutdown::Both).unwrap();
        drop(stream);
        assert!(silent.next().ends_with(&[b'x'; 10]));
        assert_eq!(used(&site, &canceled), counted(&silent.url("/in"), 10));
    });
}

/// What a request to a model counts, by what came of it.
fn counted_of_model(service: &Service, sent: &[u8]) -> u64 {
    let text = std::str::from_utf8(sent).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| {
        let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        name.len() + value.unwrap_or_else(|| panic!("{text}")).len()
    };
    let headers = header("content-type") + header("accept") + header("authorization");
    ("POST".len() + service.url("/v1/chat/completions").len() + headers + body.len()) as u64
}

#[test]
fn requests_to_models_count_and_the_budget_ends_a_run_that_is_under_way() {
    in_own_network(|| {
        let service = Service::answering(
            r#"{"id": "1", "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant",
            "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "it", "arguments": "{}"}}]}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1}}"#,
        );
        let site = site("egress_per_day: 2000");
        let policy = format!(
            "model: {{ provider: openai, name: m, base_url: '{}', api_key_env: KEY, stream: false, tools: structured, context_tokens: 100000 }}\n",
            service.url("/v1")
        );
        let project = Project::new().policy(&policy).tool("it", "", "def run(args):\n    return 'fine'\n");
        let tenant = |id: &str| {
            let tenant = site.tenant_of(id, id, &project);
            let set = site.ask(&tenant.key, "PUT /v1/secrets/KEY", &json!({"value": "a-key-of-the-tests"}));
            assert_eq!(set.status, 200, "{set:?}");
            tenant
        };
        let run = |tenant: &Tenant| {
            let run = site.begin(&tenant.key, &"a".repeat(2000));
            site.ended(&tenant.key, &run)
        };
        let (small, other) = (tenant("small"), tenant("default"));
        let ended = run(&small);
        // Its first request goes over the budget, so that its second one is not sent.
        let first = service.next();
        assert!(service.got.try_recv().is_err());
        assert_eq!(
            (&ended["state"], used(&site, &small)),
            (&json!("limited"), counted_of_model(&service, &first)),
            "{ended}"
        );
        assert_eq!(ended["result"]["error"]["message"], used_up(&site, &small, 2000), "{ended}");
        let refused = site.ask(&small.key, "POST /v1/runs", &json!({"input": "more"}));
        assert_eq!(problem(&refused), (429, "budget_exceeded".to_owned()));
        // Without a budget it has as many rounds as it may.
        run(&other);
        let sent = used(&site, &other);
        let mut all = 0;
        while all < sent {
            all += counted_of_model(&service, &service.next());
        }
        assert!(all == sent && sent > 3 * 2000, "{all} {sent}");
    });
}

/// Whether commands here have a network of their own.
fn has_own_network() -> bool {
    Offers::get().wall().is_ok_and(|wall| wall.network && wall.namespaces.is_some())
}

/// A tool that gives bash a line, with these hosts or the whole network.
fn with_bash(network: &str) -> Project {
    let script = "def run(args):\n    return exec.run('bash', ['-c', args['line']], timeout_ms=60000)\n";
    let policy = format!("sandbox: {{ exec: {{ allow: [bash], network: {network} }} }}\n");
    Project::new().policy(&policy).tool("bash", "timeout_ms: 60000\nparameters: { line: { type: string } }\n", script)
}

#[test]
fn what_commands_send_counts_and_a_connection_ends_with_the_budget() {
    in_own_network(|| {
        if skipped(Need::Namespaces, has_own_network()) {
            return;
        }
        let (service, swallowing) = (Service::answering("{}"), Service::swallowing());
        let site = site("egress_per_day: 100000");
        let project = with_bash(&format!("['{PUBLIC}:{}', '{PUBLIC}:{}']", service.port, swallowing.port));
        let (small, other) =
            (site.tenant_of("small", "small", &project), site.tenant_of("default", "default", &project));
        let bash = |tenant: &Tenant, line: &str| site.result(&tenant.key, "bash", json!({"line": line}));
        let proxy = "exec 3<>/dev/tcp/127.8.0.1/3128";
        // A request for a URL: what is sent on.
        let head = format!(
            "POST {} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\nContent-Length: 10\\r\\n\\r\\n",
            service.url("/in")
        );
        let asked = bash(&small, &format!("{proxy} && printf '{head}0123456789' >&3 && cat <&3"));
        assert!(asked["stdout"].as_str().unwrap().starts_with("HTTP/1.1 200 OK\r\n"), "{asked}");
        let before = service.next().len() as u64;
        assert_eq!(used(&site, &small), before);
        // A tunnel, with a megabyte; then another connection.
        let connect =
            format!("CONNECT {PUBLIC}:{} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n", swallowing.port);
        let tunnel = format!("{proxy} && printf '{connect}' >&3 && read -r line <&3 && echo \"$line\"");
        let megabyte = format!("({tunnel} && read -r line <&3; head -c {MEGABYTE} /dev/zero >&3 2>/dev/null; cat <&3)");
        let sent = bash(&other, &megabyte);
        assert_eq!((swallowing.next().len(), used(&site, &other)), (1_000_000, MEGABYTE), "{sent}");
        assert!(sent["stdout"].as_str().unwrap().ends_with("all of it\n"), "{sent}");
        let sent = bash(&small, &format!("{megabyte}; ({tunnel}; cat <&3)"));
        let came = swallowing.next().len() as u64;
        assert_eq!(used(&site, &small), before + came, "{sent}");
        // A piece at most over the budget.
        assert!((100_000..100_000 + (64 << 10)).contains(&(before + came)), "{came}");
        let out = sent["stdout"].as_str().unwrap();
        assert!(out.starts_with("HTTP/1.1 200 OK") && out.contains("HTTP/1.1 403 Forbidden"), "{sent}");
        assert!(out.contains(&used_up(&site, &small, 100_000)), "{sent}");
    });
}

#[test]
fn a_command_with_the_whole_network_is_refused_where_there_is_a_budget() {
    in_own_network(|| {
        let site = site("egress_per_month: 100000");
        let project = with_bash("true");
        let (small, other) =
            (site.tenant_of("small", "small", &project), site.tenant_of("default", "default", &project));
        assert_eq!(site.result(&other.key, "bash", json!({"line": "echo fine"}))["stdout"], "fine\n");
        let refused = site.call(&small.key, "bash", json!({"line": "echo fine"})).json();
        assert_eq!(refused["outcome"], "denied", "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("the bytes that it sends are not counted, and there is a budget of egress"),
            "{message}"
        );
    });
}
