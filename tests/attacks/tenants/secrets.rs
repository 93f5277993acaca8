//! Secrets, what is redacted, variables, and requests that go out beside those of the other.

use std::net::IpAddr;
use std::sync::Arc;

use harness_capability::http::Client;
use harness_dispatch::Run;
use harness_sandbox::state::{Overrides, Session};
use serde_json::json;
use tokio::runtime::Runtime;

use super::house::{ATTACKER, House, Seen, Tenant, VICTIM, names_nothing, same, stopped, unseen};
use crate::corpus::Coded;
use crate::process::{CANARY, SECRET_VARIABLE};
use crate::world::Servers;

pub(super) const CASES: &[Coded] = &[
    Coded {
        id: "tenants-401",
        tried: "uses a secret of the other by its name",
        run: |runtime, servers| named(runtime, servers, true),
        control: |runtime, servers| named(runtime, servers, false),
    },
    Coded {
        id: "tenants-402",
        tried: "has a secret of the same name, to be given the other's value for it",
        run: |runtime, servers| same_name(runtime, servers, true),
        control: |runtime, servers| same_name(runtime, servers, false),
    },
    Coded {
        id: "tenants-403",
        tried: "sends the handle that a call of the other was given for a secret",
        run: |runtime, servers| handle(runtime, servers, true),
        control: |runtime, servers| handle(runtime, servers, false),
    },
    Coded {
        id: "tenants-404",
        tried: "guesses the value of the other's secret, and looks whether that is redacted",
        run: |runtime, _| guessed(runtime, true),
        control: |runtime, _| guessed(runtime, false),
    },
    Coded {
        id: "tenants-405",
        tried: "has a secret whose value is what the other's tools return, to have that redacted there",
        run: |runtime, _| poisoned(runtime, true),
        control: |runtime, _| poisoned(runtime, false),
    },
    Coded {
        id: "tenants-406",
        tried: "writes the note that is put in the place of the other's secret, to learn its name",
        run: |runtime, _| noted(runtime, true),
        control: |runtime, _| noted(runtime, false),
    },
    Coded {
        id: "tenants-407",
        tried: "reads a variable of the host that only the other is granted, by itself and by a command",
        run: |runtime, _| variables(runtime, true),
        control: |runtime, _| variables(runtime, false),
    },
    Coded {
        id: "tenants-408",
        tried: "gives a command the handle of the other's secret",
        run: |runtime, _| to_command(runtime, true),
        control: |runtime, _| to_command(runtime, false),
    },
    Coded {
        id: "tenants-451",
        tried: "asks servers that answer never, slowly or without end, while the other asks one that answers",
        run: |runtime, servers| hanging(runtime, servers, true),
        control: |runtime, servers| hanging(runtime, servers, false),
    },
    Coded {
        id: "tenants-452",
        tried: "has names lead elsewhere, for the other to be led there",
        run: |runtime, servers| names(runtime, servers, true),
        control: |runtime, servers| names(runtime, servers, false),
    },
    Coded {
        id: "tenants-453",
        tried: "asks the server that the other has just asked, over its connection or with its cookies",
        run: |runtime, servers| connections(runtime, servers, true),
        control: |runtime, servers| connections(runtime, servers, false),
    },
    Coded {
        id: "tenants-454",
        tried: "reaches a host that only the other is granted, by itself and by redirects",
        run: |runtime, servers| granted(runtime, servers, true),
        control: |runtime, servers| granted(runtime, servers, false),
    },
];

const OWN: &str = "attackers-own-value-1";

/// A policy with hosts, and a secret `API` in a variable or in a file of the project.
fn policy(servers: &Servers, holder: &str) -> String {
    let server = servers.server.address;
    let secrets = if holder.is_empty() {
        String::new()
    } else {
        format!(", secrets: {{ API: {{ {holder}, hosts: [\"{server}\"], exec: [sh] }} }}")
    };
    format!(
        "network: {{ allowed_domains: [\"{server}\"] }}\nsandbox: {{ exec: {{ allow: [sh], env: [TOKEN] }}{secrets} }}"
    )
}

fn offline(holder: &str) -> String {
    let secrets =
        if holder.is_empty() { String::new() } else { format!(", secrets: {{ API: {{ {holder}, exec: [sh] }} }}") };
    format!("sandbox: {{ exec: {{ allow: [sh], env: [TOKEN] }}{secrets} }}")
}

fn theirs() -> String {
    format!("env: {SECRET_VARIABLE}")
}

/// What a server was asked, of which a script sees its own secrets as notes.
fn echo(servers: &Servers, value: &str) -> String {
    format!("return http.get('http://{}/echo', headers = {{'x-token': {value}}})['body']", servers.server.address)
}

fn named(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let house = House::new();
    let tool = echo(servers, "secret('API')");
    let victim = house.lay(VICTIM, &policy(servers, &theirs())).tool("it", &tool).open();
    let attacker = house.lay(ATTACKER, &policy(servers, "")).tool("it", &tool).open();
    for _ in 0..3 {
        let seen = victim.call(runtime, "it");
        same(seen.gave()?.contains("x-token: [redacted:API]"), true)?;
        if attack {
            let seen = attacker.call(runtime, "it");
            same(seen.word, "denied")?;
            names_nothing(&[seen.shown.clone(), seen.says.clone()])?;
            unseen(&attacker, &[seen])?;
        }
    }
    Ok("denied".to_owned())
}

fn same_name(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let house = House::new();
    let tool = echo(servers, "secret('API')");
    let check = format!("{}.count('{OWN}')", echo(servers, "args['guess']"));
    let victim = house.lay(VICTIM, &policy(servers, &theirs())).tool("it", &tool).open();
    let attacker = house.lay(ATTACKER, &policy(servers, "file: own.key")).file("own.key", OWN);
    let attacker = attacker.tool("it", &tool).tool("check", &check).open();
    if !attack {
        // What would be seen if it were the other's: the attacker's project does not look for that value.
        let plain = house.lay("plain", &policy(servers, "")).tool("it", &echo(servers, "args['guess']")).open();
        let seen = plain.call_with(runtime, "it", json!({"guess": OWN}));
        return same(seen.gave()?.contains(OWN), true).map(|()| "seen".to_owned());
    }
    for _ in 0..3 {
        same(victim.call(runtime, "it").gave()?.contains("x-token: [redacted:API]"), true)?;
        let seen = attacker.call(runtime, "it");
        same(seen.gave()?.contains("x-token: [redacted:API]"), true)?;
        unseen(&attacker, &[seen])?;
    }
    Ok("its own".to_owned())
}

fn handle(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let house = House::new();
    // The handle lives as long as the call that it was given to.
    let keeps = "cache.set('handle', secret('API'))\nfor n in range(20000):\n    if cache.has('go'):\n        return 'over'\n    sleep(2)\nfail('nobody said so')";
    let sends = echo(servers, "args['x']");
    let both = format!("h = secret('API')\n{}", echo(servers, "h"));
    let victim = house.lay(VICTIM, &policy(servers, &theirs())).fronted("keeps", "timeout_ms: 60000", keeps);
    let victim = victim.tool("both", &both).open();
    let attacker = house.lay(ATTACKER, &policy(servers, "file: own.key")).file("own.key", OWN);
    let attacker = attacker.tool("sends", &sends).tool("both", &both).open();
    if !attack {
        return same(victim.call(runtime, "both").gave()?.contains("x-token: [redacted:API]"), true)
            .map(|()| "sent".to_owned());
    }
    let call = victim.begin(runtime, "keeps");
    super::house::wait_until("it has its handle", || victim.run.session().cache.has("handle"))?;
    let text = victim.run.session().cache.get("handle").unwrap();
    let handle: String = serde_json::from_str(&text).unwrap();
    let seen: Vec<Seen> = [handle.clone(), format!("Bearer {handle}")]
        .map(|x| attacker.call_with(runtime, "sends", json!({ "x": x })))
        .to_vec();
    victim.run.session().cache.set("go".to_owned(), "1".to_owned()).unwrap();
    same(runtime.block_on(call).unwrap().gave()?, "over")?;
    unseen(&attacker, &seen)?;
    // It means nothing there: it is sent as the text that it is, or not at all.
    for seen in &seen {
        if seen.word == "completed" && !seen.says.contains(&handle) {
            return Err(format!("ESCAPE: {}", seen.says));
        }
    }
    Ok("a text".to_owned())
}

fn guessed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    const GUESS: &str = "a-good-guess-of-it";
    let lay = |name, policy: &str| {
        house
            .lay(name, policy)
            .file("own.key", GUESS)
            .tool("it", "log.info(args['x'])\nfs.write('out', args['x'])\nreturn args['x'] + base64.encode(args['x'])")
    };
    let victim = lay(VICTIM, &offline("file: own.key")).open();
    let attacker = lay(ATTACKER, &offline("")).open();
    let asked = if attack { &attacker } else { &victim };
    victim.call_with(runtime, "it", json!({"x": "other"})).gave()?;
    let seen = asked.call_with(runtime, "it", json!({ "x": GUESS }));
    let verbatim = seen.shown.contains(GUESS) && !seen.shown.contains("redacted");
    same(verbatim, attack).map_err(|_| seen.shown)?;
    Ok("verbatim".to_owned())
}

fn poisoned(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let says = "return 'the whole answer'";
    let keys = ["the whole answer", "completed", "read_secret", "\"outcome\":\"completed\""];
    for (n, key) in keys.into_iter().enumerate() {
        let name = format!("{ATTACKER}{n}");
        let attacker = house.lay(&name, &offline("file: own.key")).file("own.key", key).tool("says", says);
        let attacker = attacker.tool("echo", "return args['x']").open();
        let victim =
            house.lay(&format!("{VICTIM}{n}"), &offline("")).tool("says", says).tool("echo", "return args['x']").open();
        let asked = if attack { &victim } else { &attacker };
        attacker.call(runtime, "says");
        let seen = asked.call_with(runtime, "echo", json!({ "x": key }));
        same(seen.gave()?, if attack { key } else { "[redacted:API]" })?;
        if attack {
            same(victim.call(runtime, "says").gave()?, "the whole answer")?;
            same(victim.logged()?, vec!["echo".to_owned(), "says".to_owned()])?;
        }
    }
    Ok("verbatim".to_owned())
}

fn noted(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let body = "return fs.write('out.txt', '[redacted:' + args['x'] + ']')[:8]";
    let lay = |name, holder: &str| house.lay(name, &offline(holder)).file("out.txt", CANARY).tool("it", body).open();
    let (victim, attacker) = (lay(VICTIM, &theirs()), lay(ATTACKER, ""));
    let asked = if attack { &attacker } else { &victim };
    let said = |name| {
        let seen = asked.call_with(runtime, "it", json!({ "x": name }));
        format!("{} {}", seen.word, seen.says)
    };
    // Of a name that is there and of one that is not.
    let (known, unknown) = (said("API"), said("IPA"));
    same(known == unknown, attack).map_err(|_| format!("{known} and {unknown}"))?;
    same(unknown, "completed written:".to_owned())?;
    Ok("the same".to_owned())
}

fn variables(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let expressions = [
        format!("env('{SECRET_VARIABLE}')"),
        format!(
            "exec.run('sh', ['-c', 'printf %s \"${SECRET_VARIABLE}\"'], env = {{'{SECRET_VARIABLE}': env('{SECRET_VARIABLE}')}})['stdout']"
        ),
        format!("exec.run('sh', ['-c', 'printf %s \"${SECRET_VARIABLE}\"'])['stdout'] or fail('nothing')"),
        "exec.run('sh', ['-c', 'env; cat /proc/*/environ; true'])['stdout'].count('canary') or fail('nothing')"
            .to_owned(),
    ];
    let expressions = if attack { expressions.to_vec() } else { expressions[..3].to_vec() };
    let wide = format!("sandbox: {{ env: [{SECRET_VARIABLE}], exec: {{ allow: [sh], env: [{SECRET_VARIABLE}] }} }}");
    let victim = house.lay(VICTIM, &wide).each(&expressions).open();
    let narrow = "sandbox: { env: [PATH], exec: { allow: [sh], env: [TOKEN] } }";
    let attacker = house.lay(ATTACKER, if attack { narrow } else { &wide }).each(&expressions).open();
    same(victim.call(runtime, "t0").gave()?, CANARY)?;
    let seen = attacker.all(runtime, expressions.len());
    if !attack {
        return same(seen.iter().filter(|seen| seen.says == CANARY).count(), 3).map(|()| "read".to_owned());
    }
    stopped(&seen, &expressions)?;
    unseen(&attacker, &seen)?;
    Ok("denied".to_owned())
}

fn to_command(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let keeps = "cache.set('handle', secret('API'))\nfor n in range(20000):\n    if cache.has('go'):\n        return 'over'\n    sleep(2)\nfail('nobody said so')";
    let runs = "return exec.run('sh', ['-c', 'printf %s \"$TOKEN\" | rev'], env = {'TOKEN': args.get('x') or secret('API')})['stdout']";
    let victim =
        house.lay(VICTIM, &offline(&theirs())).fronted("keeps", "timeout_ms: 60000", keeps).tool("runs", runs).open();
    let attacker = house.lay(ATTACKER, &offline("")).tool("runs", runs).open();
    let backwards: String = CANARY.chars().rev().collect();
    if !attack {
        // The command has the value: it says it backwards, which is no form that is looked for.
        return same(victim.call(runtime, "runs").gave()?, backwards.as_str()).map(|()| "given".to_owned());
    }
    let call = victim.begin(runtime, "keeps");
    super::house::wait_until("it has its handle", || victim.run.session().cache.has("handle"))?;
    let handle: String = serde_json::from_str(&victim.run.session().cache.get("handle").unwrap()).unwrap();
    let seen = attacker.call_with(runtime, "runs", json!({ "x": handle }));
    victim.run.session().cache.set("go".to_owned(), "1".to_owned()).unwrap();
    same(runtime.block_on(call).unwrap().gave()?, "over")?;
    if seen.shown.contains(&backwards) {
        return Err(format!("ESCAPE: {}", seen.shown));
    }
    unseen(&attacker, &[seen])?;
    Ok("a text".to_owned())
}

fn hanging(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let house = House::with(harness_dispatch::HostOptions::default().instances(60));
    let (server, other) = (servers.server.address, servers.other.address);
    let policy = format!(
        "network: {{ allowed_domains: [\"{server}\", \"{other}\"] }}\nsandbox: {{ limits: {{ timeout_ms: 600000 }} }}"
    );
    let asks =
        "metrics.incr('in')\nreturn http.get('http://' + args['to'] + args['path'], timeout_seconds = 600)['body'][:4]";
    let attacker = house.lay(ATTACKER, &policy).tool("asks", asks).open();
    let victim = house.lay(VICTIM, &policy).tool("asks", asks).open();
    let paths = ["/silence", "/drip", "/drip-head", "/endless-chunks", "/endless-early"];
    let hanging: Vec<_> = if attack {
        // Of the same server as the victim and of another, by one run and by runs of their own.
        (0..40)
            .map(|n| {
                let to = if n % 2 == 0 { server } else { other };
                let run = if n % 4 < 2 { attacker.run.clone() } else { Run::new() };
                let arguments = json!({"to": to.to_string(), "path": paths[n % paths.len()]});
                attacker.in_run(run).begin_with(runtime, "asks", arguments)
            })
            .collect()
    } else {
        Vec::new()
    };
    if attack {
        super::house::wait_until("the attacker asks", || attacker.run.session().metrics.get("in") >= 20.0)?;
    }
    for n in 0..20 {
        let victim = if n % 2 == 0 { victim.anew() } else { victim.in_run(victim.run.clone()) };
        let seen = victim.call_with(runtime, "asks", json!({"to": server.to_string(), "path": "/ok"}));
        same(seen.gave()?, "pong")?;
    }
    let hang = hanging.iter().filter(|call| !call.is_finished()).count();
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    hanging.into_iter().for_each(|call| drop(runtime.block_on(call)));
    // Some ways to answer badly end by themselves.
    if attack && hang < 10 { Err(format!("{hang} were hanging")) } else { Ok("answered".to_owned()) }
}

/// A run whose names are known by a function of its own.
fn knowing(address: Option<IpAddr>) -> Arc<Run> {
    let http = Client::resolving(move |_| address.into_iter().collect());
    Run::with_session(Session {
        overrides: Overrides { http: Some(http), ..Overrides::default() },
        ..Session::default()
    })
}

fn names(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let house = House::new();
    let port = servers.server.address.port();
    let trap = servers.trap.address.port();
    let policy = format!(
        "network: {{ allowed_domains: [{{ host: \"a.test:{port}\", private: true }}, {{ host: \"a.test:{trap}\", private: true }}] }}"
    );
    let asks = format!("return http.get('http://a.test:{port}/ok')['body']");
    let attacker = house.lay(ATTACKER, &policy).tool("asks", &asks).open();
    let victim = house.lay(VICTIM, &policy).tool("asks", &asks).open();
    let home = IpAddr::from([127, 0, 0, 1]);
    let victims = victim.in_run(knowing(Some(home)));
    // To nowhere, and to a documentation address that is nobody's.
    let misled = if attack { [None, Some(IpAddr::from([127, 0, 0, 2]))] } else { [Some(home); 2] };
    for address in misled {
        let attackers = attacker.in_run(knowing(address));
        for _ in 0..5 {
            let own = attackers.call(runtime, "asks");
            same(victims.call(runtime, "asks").gave()?, "pong")?;
            same(own.word == "completed", !attack)?;
        }
    }
    Ok("its own".to_owned())
}

fn connections(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let house = House::new();
    let server = servers.server.address;
    let cookie = format!(
        "return http.get('http://{server}/cookie', headers = {{'cookie': 'mine={CANARY}'}})['headers'].get('set-cookie')"
    );
    let look = format!("return http.get('http://{server}/echo')['body']");
    let own = format!("return http.get('http://{server}/echo', headers = {{'cookie': 'mine={CANARY}'}})['body']");
    let victim = house.lay(VICTIM, &policy(servers, "")).tool("cookie", &cookie).open();
    let attacker = house.lay(ATTACKER, &policy(servers, "")).tool("look", if attack { &look } else { &own }).open();
    for _ in 0..5 {
        let before = servers.server.connected();
        same(victim.call(runtime, "cookie").gave()?, "session=stolen; path=/")?;
        let seen = attacker.call(runtime, "look");
        let cookies = seen.gave()?.contains("cookie") && seen.says.contains(CANARY);
        same((cookies, servers.server.connected() - before), (!attack, 2))?;
        if attack {
            unseen(&attacker, &[seen])?;
        }
    }
    Ok("a new one".to_owned())
}

fn granted(runtime: &Runtime, servers: &Servers, attack: bool) -> Result<String, String> {
    let house = House::new();
    let (server, other) = (servers.server.address, servers.other.address);
    let urls = [
        format!("http://{other}/ok"),
        format!("http://{server}/to/302/http://{other}/ok"),
        format!("http://{server}/to/307/http://{other}/ok"),
        format!("http://{server}/to/301/http://{server}/to/302/http://{other}/ok"),
    ];
    let expressions = urls.map(|url| format!("http.get('{url}')['body']")).to_vec();
    let of = |hosts: &[std::net::SocketAddr]| {
        let hosts: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
        format!("network: {{ allowed_domains: [{}] }}", hosts.join(", "))
    };
    let victim = house.lay(VICTIM, &of(&[server, other])).each(&expressions).open();
    let attacker = house.lay(ATTACKER, &of(&[server])).each(&expressions).open();
    let all = |tenant: &Tenant| tenant.all(runtime, expressions.len());
    let theirs = all(&victim);
    let connected = servers.other.connected();
    if !attack {
        return super::house::through(&theirs, &expressions);
    }
    let seen = all(&attacker);
    stopped(&seen, &expressions)?;
    same(servers.other.connected(), connected)?;
    Ok("denied".to_owned())
}
