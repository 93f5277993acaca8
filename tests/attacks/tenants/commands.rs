//! Commands of two projects at one time: what they see of each other, and what one takes from the other.

use harness_dispatch::HostOptions;
use harness_wall::{Count, Offers};
use serde_json::json;
use tokio::runtime::Runtime;

use super::house::{House, Seen, Tenant, VICTIM, same, stopped, unseen, wait_until};
use crate::corpus::{Coded, alone};
use crate::process::{CANARY, lingering, lingers};

pub(super) const CASES: &[Coded] = &[
    Coded {
        id: "tenants-501",
        tried: "kills a command of the other, by its number and by all numbers at once",
        run: |runtime, _| killed(runtime, true),
        control: |runtime, _| killed(runtime, false),
    },
    Coded {
        id: "tenants-502",
        tried: "looks in `/proc` for the commands of the other, their arguments, variables and files",
        run: |runtime, _| listed(runtime, true),
        control: |runtime, _| listed(runtime, false),
    },
    Coded {
        id: "tenants-503",
        tried: "leaves processes behind that outlive their call, while the other's command runs",
        run: |runtime, _| left(runtime, true),
        control: |runtime, _| left(runtime, false),
    },
    Coded {
        id: "tenants-504",
        tried: "forks without end, so that the other's command can start no process",
        run: |runtime, _| forked(runtime, true),
        control: |runtime, _| forked(runtime, false),
    },
    Coded {
        id: "tenants-505",
        tried: "takes all memory that it can get, while the other's command holds some",
        run: |runtime, _| filled(runtime, true),
        control: |runtime, _| filled(runtime, false),
    },
    Coded {
        id: "tenants-506",
        tried: "looks in all temporary folders for files of a command of the other that runs",
        run: |runtime, _| temporary(runtime, true),
        control: |runtime, _| temporary(runtime, false),
    },
    Coded {
        id: "tenants-507",
        tried: "looks for descriptors of the other's commands, which are started at the same time",
        run: |runtime, _| descriptors(runtime, true),
        control: |runtime, _| descriptors(runtime, false),
    },
    Coded {
        id: "tenants-508",
        tried: "has its calls given up while their commands run, to have the other's command end too",
        run: |runtime, _| given_up(runtime, true),
        control: |runtime, _| given_up(runtime, false),
    },
    Coded {
        id: "tenants-509",
        tried: "writes without end to both outputs, while the other's command writes its own",
        run: |runtime, _| floods(runtime, true),
        control: |runtime, _| floods(runtime, false),
    },
    Coded {
        id: "tenants-510",
        tried: "reads, lists, links and starts in the other's workspace by a command",
        run: |runtime, _| reached(runtime, true),
        control: |runtime, _| reached(runtime, false),
    },
    Coded {
        id: "tenants-511",
        tried: "starts twenty commands at once that never end, while the other starts one after the other",
        run: |runtime, _| many(runtime, true),
        control: |runtime, _| many(runtime, false),
    },
    Coded {
        id: "tenants-512",
        tried: "looks for memory and queues of the machine that the other's command has made",
        run: |runtime, _| shared(runtime, true),
        control: |runtime, _| shared(runtime, false),
    },
];

/// A command of the victim that runs until a file is there, and then shows that it was never disturbed.
const WAITS: &str = "return exec.run('sh', ['-c', 'echo $$ > started; trap \"echo caught\" TERM HUP INT; while [ ! -e go ]; do sleep 0.01; done; echo unharmed; cat secret.txt; : ' + args.get('mark', '')], timeout_ms = 60000)['stdout']";
const SAYS: &str = "return exec.run('sh', ['-c', args['line']], timeout_ms = 20000)['stdout']";

struct Waiting<'a> {
    runtime: &'a Runtime,
    victim: &'a Tenant,
    call: tokio::task::JoinHandle<Seen>,
}

impl<'a> Waiting<'a> {
    fn begin(runtime: &'a Runtime, victim: &'a Tenant) -> Result<Self, String> {
        for file in ["go", "started"] {
            let _ = std::fs::remove_file(victim.root.join(file));
        }
        let call = victim.begin_with(runtime, "waits", json!({ "mark": format!("{CANARY}-mark") }));
        wait_until("the victim's command began", || victim.root.join("started").exists())?;
        Ok(Self { runtime, victim, call })
    }

    /// Lets it end, and looks whether it was disturbed.
    fn end(self) -> Result<(), String> {
        same(self.call.is_finished(), false)?;
        std::fs::write(self.victim.root.join("go"), "").unwrap();
        same(self.runtime.block_on(self.call).unwrap().gave()?, &format!("unharmed\n{CANARY}"))
    }

    /// Its number on the machine.
    fn pid(&self) -> Result<String, String> {
        let mut found = None;
        let mark = format!("{CANARY}-mark");
        wait_until("the victim's command is found", || {
            let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
            found = all
                .filter(|entry| {
                    let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                    String::from_utf8_lossy(&line).contains(&mark)
                })
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .find(|name| name.parse::<u32>().is_ok());
            found.is_some()
        })?;
        found.ok_or_else(|| "it is not there".to_owned())
    }
}

fn pair(house: &House) -> (Tenant, Tenant) {
    let attacker = house.attacker().tool("says", SAYS).open();
    let victim = house.victim().fronted("waits", "timeout_ms: 60000", WAITS).tool("says", SAYS).open();
    (attacker, victim)
}

fn say(runtime: &Runtime, tenant: &Tenant, line: &str) -> Seen {
    tenant.call_with(runtime, "says", json!({ "line": line }))
}

fn killed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let (attacker, victim) = pair(&house);
    let waiting = Waiting::begin(runtime, &victim)?;
    let pid = waiting.pid()?;
    if !attack {
        let own = "sh -c 'while :; do sleep 1; done' & kill -9 $! && wait $!; echo $?";
        same(say(runtime, &attacker, own).gave()?, "137\n")?;
        return waiting.end().map(|()| "killed".to_owned());
    }
    let lines = [
        format!("kill -TERM {pid} 2>/dev/null && echo reached"),
        format!("kill -9 {pid} 2>/dev/null && echo reached"),
        format!("kill -9 -{pid} 2>/dev/null && echo reached"),
        format!("kill -STOP {pid} 2>/dev/null && echo reached"),
        "trap '' TERM; kill -TERM -1 2>/dev/null; echo over".to_owned(),
        "kill -9 -1 2>/dev/null; echo over".to_owned(),
        "for n in 1 2 3 4 5 6 7 8 9; do [ $n = $$ ] || kill -9 $n 2>/dev/null; done; echo over".to_owned(),
    ];
    for line in &lines {
        let seen = say(runtime, &attacker, line);
        if seen.gave()?.contains("reached") {
            return Err(format!("ESCAPE: {line}"));
        }
    }
    waiting.end()?;
    Ok("not reached".to_owned())
}

fn listed(runtime: &Runtime, attack: bool) -> Result<String, String> {
    if alone() {
        println!("    tenants-502 was NOT tried: without a view, a command sees the machine's processes");
        return Ok("not tried".to_owned());
    }
    let house = House::new();
    let (attacker, victim) = pair(&house);
    let waiting = Waiting::begin(runtime, &victim)?;
    let pid = waiting.pid()?;
    let asks = if attack { &attacker } else { &victim };
    let lines = if attack {
        vec![
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/task/*/cmdline | tr '\\0' ' '".to_owned(),
            "cat /proc/[0-9]*/environ | tr '\\0' ' '".to_owned(),
            "ls -l /proc/[0-9]*/cwd /proc/[0-9]*/exe /proc/[0-9]*/fd /proc/[0-9]*/root".to_owned(),
            "cat /proc/[0-9]*/mountinfo /proc/mounts".to_owned(),
            "ps -ef || true".to_owned(),
            "cat /proc/[0-9]*/cgroup".to_owned(),
            format!("cat /proc/{pid}/cmdline /proc/{pid}/environ; ls /proc/{pid}/cwd/; cat /proc/{pid}/cwd/secret.txt"),
            format!("ls /proc/{pid}/root{}/docs", victim.root.display()),
        ]
    } else {
        // Its own: this shell's arguments hold the text too.
        vec![format!("cat /proc/$$/cmdline | tr '\\0' ' '; : {CANARY}-mark")]
    };
    let mut shown = 0;
    for line in &lines {
        let seen = say(runtime, asks, &format!("({line}) 2>/dev/null; true"));
        let says = seen.gave()?;
        shown += usize::from([CANARY, VICTIM, "plain.txt"].iter().any(|text| says.contains(text)));
        if attack && shown > 0 {
            return Err(format!("ESCAPE: {line}: {says}"));
        }
    }
    waiting.end()?;
    if (shown == 0) == attack { Ok("nothing".to_owned()) } else { Err(format!("{shown}")) }
}

fn left(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let (attacker, victim) = pair(&house);
    let waiting = Waiting::begin(runtime, &victim)?;
    let mark = lingers();
    let lines = [
        format!("setsid sh -c 'while :; do sleep 1; done; : {mark}' >/dev/null 2>&1 </dev/null & echo started"),
        format!("(setsid sh -c '(while :; do sleep 1; done; : {mark}) &' &) >/dev/null 2>&1 </dev/null; echo started"),
        format!(
            "(trap '' HUP TERM INT; exec sh -c 'while :; do sleep 1; done; : {mark}') >/dev/null 2>&1 & echo started"
        ),
    ];
    let lines: Vec<String> = if attack { lines.to_vec() } else { vec!["echo started".to_owned()] };
    for line in lines {
        same(say(runtime, &attacker, &line).gave()?, "started\n")?;
    }
    if !attack {
        // What continues is found, while it does.
        let pid = waiting.pid()?;
        same(std::path::Path::new(&format!("/proc/{pid}")).exists(), true)?;
    }
    let found = lingering();
    same(found, Vec::new())?;
    waiting.end()?;
    Ok("gone".to_owned())
}

/// Whether the machine counts processes for each command by itself.
fn counts_apart(id: &str) -> bool {
    let count = Offers::get().wall().ok().map(|wall| wall.count);
    let apart = count.is_some_and(|count| count != Count::User);
    if !apart {
        println!("    {id} was NOT tried: this machine counts all processes of a user together");
    }
    apart
}

const FEW: &str =
    "sandbox: { exec: { allow: [sh] }, limits: { processes: 24, command_memory_mb: 96, timeout_ms: 60000 } }";

fn forked(runtime: &Runtime, attack: bool) -> Result<String, String> {
    if !counts_apart("tenants-504") {
        return Ok("not tried".to_owned());
    }
    let house = House::new();
    // The shell itself becomes `sleep`: a shell that cannot fork ends, and its command with it.
    let bombs = format!(
        "return exec.run('sh', ['-c', 'bomb() {{ echo x >> forked; bomb {} | bomb & }}; bomb & exec sleep 1000'], timeout_ms = 50000)['exit_code']",
        lingers()
    );
    let attacker = house.lay(super::house::ATTACKER, FEW).tool("bombs", &bombs).open();
    let victim = house.victim().tool("says", SAYS).open();
    let calls: Vec<_> = (0..if attack { 3 } else { 0 }).map(|_| attacker.begin(runtime, "bombs")).collect();
    if attack {
        let forked = || std::fs::read_to_string(attacker.root.join("forked")).is_ok_and(|text| text.len() > 40);
        wait_until("the bomb went off", forked)?;
    }
    let starts = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (sleep 0.2; echo ran) & done; wait";
    for _ in 0..2 {
        let ran = say(runtime, &victim, starts);
        same(ran.gave()?, &"ran\n".repeat(20))?;
    }
    let over = calls.iter().filter(|call| call.is_finished()).count();
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    calls.into_iter().for_each(|call| drop(runtime.block_on(call)));
    same(over, 0)?;
    same(lingering(), Vec::new())?;
    // The control of the bound itself: so many are not to be had.
    let few = house.lay("few", FEW).tool("says", SAYS).open();
    let too_many = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do sleep 0.3 & done 2>/dev/null; wait; echo all";
    let seen = say(runtime, &few, too_many);
    same(seen.word != "completed" || seen.says != "all\n", true).map_err(|_| seen.says)?;
    Ok("20 processes".to_owned())
}

fn filled(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    // A shell that holds ever longer texts.
    let line = "x=0123456789; while :; do x=$x$x; done";
    let fills = format!("return exec.run('sh', ['-c', '{line}'], timeout_ms = 50000)['exit_code']");
    let attacker = house.lay(super::house::ATTACKER, FEW).tool("fills", &fills).tool("says", SAYS).open();
    let victim = house.victim().fronted("waits", "timeout_ms: 60000", WAITS).tool("says", SAYS).open();
    let waiting = Waiting::begin(runtime, &victim)?;
    if attack {
        for _ in 0..3 {
            let seen = attacker.call(runtime, "fills");
            same(seen.gave()? == "0", false)?;
        }
    } else {
        same(say(runtime, &attacker, "x=0123456789; x=$x$x$x; echo ${#x}").gave()?, "30\n")?;
    }
    waiting.end()?;
    Ok("unharmed".to_owned())
}

const FOLDERS: &str = "for d in \"$TMPDIR\" \"$TMPDIR/..\" /tmp /var/tmp /dev/shm \"$HOME\" /run; do";

fn temporary(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let (attacker, victim) = pair(&house);
    let leaves = format!(
        "return exec.run('sh', ['-c', '{FOLDERS} echo {CANARY} > \"$d/kept-by-victim\"; done 2>/dev/null; echo x > started; while [ ! -e go ]; do sleep 0.01; done; cat \"$TMPDIR/kept-by-victim\"'], timeout_ms = 60000)['stdout']"
    );
    drop(victim);
    let victim = house.victim().fronted("leaves", "timeout_ms: 60000", &leaves).open();
    let call = victim.begin(runtime, "leaves");
    wait_until("the victim's command began", || victim.root.join("started").exists())?;
    let look = format!(
        "{FOLDERS} cat \"$d/kept-by-victim\"; find \"$d\" -name \"kept-by-victim\" -exec cat {{}} +; done 2>/dev/null; true"
    );
    let line = if attack { look } else { format!("echo {CANARY} > \"$TMPDIR/kept-by-victim\"; {look}") };
    let seen = say(runtime, &attacker, &line);
    std::fs::write(victim.root.join("go"), "").unwrap();
    same(runtime.block_on(call).unwrap().gave()?, &format!("{CANARY}\n"))?;
    same(seen.gave()?.contains(CANARY), !attack)?;
    Ok("nothing".to_owned())
}

fn descriptors(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::with(HostOptions::default().instances(40));
    let (attacker, victim) = pair(&house);
    // `ls` has the folder itself open too.
    let look = "ls /proc/self/fd | wc -l";
    let line = if attack { look.to_owned() } else { format!("exec 7<&0; {look}") };
    let calls: Vec<_> = (0..15)
        .flat_map(|_| {
            let theirs = victim.begin_with(runtime, "says", json!({"line": "cat secret.txt"}));
            let own = attacker.begin_with(runtime, "says", json!({ "line": line }));
            [(true, theirs), (false, own)]
        })
        .collect();
    for (theirs, call) in calls {
        let seen = runtime.block_on(call).unwrap();
        let wanted = match (theirs, attack) {
            (true, _) => CANARY,
            (false, true) => "4",
            (false, false) => "5",
        };
        same(seen.gave()?.trim(), wanted)?;
    }
    Ok("its own".to_owned())
}

fn given_up(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let (attacker, victim) = pair(&house);
    let waiting = Waiting::begin(runtime, &victim)?;
    let line = format!("echo x > begun; while :; do sleep 1; done; : {}", lingers());
    for _ in 0..if attack { 8 } else { 0 } {
        let _ = std::fs::remove_file(attacker.root.join("begun"));
        let call = attacker.begin_with(runtime, "says", json!({ "line": line }));
        wait_until("the attacker's command began", || attacker.root.join("begun").exists())?;
        call.abort();
        let _ = runtime.block_on(call);
    }
    same(lingering(), Vec::new())?;
    waiting.end()?;
    Ok("unharmed".to_owned())
}

fn floods(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let (attacker, victim) = pair(&house);
    let line = "echo x > begun; while :; do echo flood-of-the-attacker; echo flood-of-the-attacker >&2; done";
    let calls: Vec<_> = (0..if attack { 3 } else { 0 })
        .map(|_| attacker.begin_with(runtime, "says", json!({ "line": line })))
        .collect();
    if attack {
        wait_until("the attacker's command began", || attacker.root.join("begun").exists())?;
    }
    let numbers: String = (1..=2000).map(|n| format!("{n}\n")).collect();
    for _ in 0..3 {
        same(say(runtime, &victim, "seq 2000").gave()?, numbers.as_str())?;
    }
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    calls.into_iter().for_each(|call| drop(runtime.block_on(call)));
    Ok("whole".to_owned())
}

fn reached(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::new();
    let victim = house.victim().open();
    let way = if attack { victim.root.to_str().unwrap().to_owned() } else { ".".to_owned() };
    let relative = if attack { format!("../{VICTIM}") } else { "./".to_owned() };
    let run = |line: String| format!("exec.run('sh', ['-c', '({line}) 2>/dev/null'])['stdout'] or fail('nothing')");
    let expressions: Vec<String> = vec![
        run(format!("cat {way}/secret.txt")),
        run(format!("cat {relative}/secret.txt")),
        run(format!("ls -a {way}")),
        run(format!("ls -a {relative}")),
        run(format!("ln {way}/secret.txt hard && cat hard")),
        run(format!("ln -s {way} way{0}; cat way{0}/secret.txt", relative.len())),
        run(format!("cd {way} && cat secret.txt")),
        run(format!("echo x > {way}/made && echo made")),
        run(format!("cp {way}/secret.txt copied && cat copied")),
        format!("exec.run('cat', ['secret.txt'], dir = '{relative}')['stdout'] or fail('nothing')"),
        format!("exec.run('cat', ['{way}/secret.txt'])['stdout'] or fail('nothing')"),
    ];
    let attacker = house.attacker().file("secret.txt", "own").each(&expressions).open();
    let before = super::house::tree(&victim.root);
    let seen = attacker.all(runtime, expressions.len());
    super::house::unchanged(&victim.root, &before)?;
    if !attack {
        return super::house::through(&seen, &expressions);
    }
    stopped(&seen, &expressions)?;
    unseen(&attacker, &seen)?;
    same(victim.call(runtime, "read_secret").gave()?, CANARY)?;
    Ok("nothing".to_owned())
}

fn many(runtime: &Runtime, attack: bool) -> Result<String, String> {
    let house = House::with(HostOptions::default().instances(30));
    let (attacker, victim) = pair(&house);
    let line = format!("echo x >> begun; while :; do sleep 1; done; : {}", lingers());
    let calls: Vec<_> = (0..if attack { 20 } else { 0 })
        .map(|_| attacker.begin_with(runtime, "says", json!({ "line": line })))
        .collect();
    if attack {
        let begun =
            || std::fs::read_to_string(attacker.root.join("begun")).is_ok_and(|text| text.lines().count() == 20);
        wait_until("the attacker's commands began", begun)?;
    }
    for _ in 0..10 {
        same(say(runtime, &victim, "cat secret.txt").gave()?, CANARY)?;
    }
    let over = calls.iter().filter(|call| call.is_finished()).count();
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    calls.into_iter().for_each(|call| drop(runtime.block_on(call)));
    same((over, lingering()), (0, Vec::new()))?;
    Ok("completed".to_owned())
}

fn shared(runtime: &Runtime, attack: bool) -> Result<String, String> {
    if alone() {
        println!("    tenants-512 was NOT tried: without a view, a command makes nothing of that kind");
        return Ok("not tried".to_owned());
    }
    let house = House::new();
    let (attacker, _) = pair(&house);
    let makes = "return exec.run('sh', ['-c', 'ipcmk -M 4096 -Q > made; ipcs -m -q > all; echo x > started; while [ ! -e go ]; do sleep 0.01; done; cat all'], timeout_ms = 60000)['stdout']";
    let victim = house.victim().fronted("makes", "timeout_ms: 60000", makes).open();
    let call = victim.begin(runtime, "makes");
    wait_until("the victim's command began", || victim.root.join("started").exists())?;
    let look = "ipcs -m -q | grep -c 0x; cat /proc/sysvipc/shm /proc/sysvipc/msg 2>/dev/null | grep -c [0-9]; true";
    let line = if attack { look.to_owned() } else { format!("ipcmk -M 4096 -Q >/dev/null; {look}") };
    let seen = say(runtime, &attacker, &line);
    std::fs::write(victim.root.join("go"), "").unwrap();
    let theirs = runtime.block_on(call).unwrap();
    if theirs.gave()?.matches("0x").count() < 2 {
        println!("    tenants-512 was NOT tried: this machine has no `ipcmk`");
        return Ok("not tried".to_owned());
    }
    let first = seen.gave()?.lines().next().unwrap_or_default().to_owned();
    same(first.as_str(), if attack { "0" } else { "2" })?;
    Ok("nothing".to_owned())
}
