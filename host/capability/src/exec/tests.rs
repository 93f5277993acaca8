//! Whole runs of small programs that every system has.

use crate::env::Variables;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cap_std::ambient_authority;
use tempfile::TempDir;

use super::*;
use crate::resources::Resources;
use harness_policy::command::{CommandNetwork, CommandRule, ExecRules};
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::limits::LimitRules;
use harness_policy::path::{FsRules, PathPattern};

/// Far more than anything here takes, so that a slow machine fails nothing.
pub(super) const LONG: Duration = Duration::from_secs(60);

fn grant(allow: &[&str], env: &[&str]) -> Grant {
    let exec = ExecRules {
        allow: allow.iter().map(|text| CommandRule::parse(text).unwrap()).collect(),
        env: env.iter().map(|&name| name.to_owned()).collect(),
        network: CommandNetwork::None,
        folders: Vec::new(),
        unconfined: false,
    };
    granted(exec)
}

/// With a workspace that is open, as a project's is.
pub(super) fn granted(exec: ExecRules) -> Grant {
    let open = || vec![PathPattern::parse(".").unwrap()];
    with_files(exec, FsRules { read: open(), write: open(), ..FsRules::default() })
}

pub(super) fn with_files(exec: ExecRules, fs: FsRules) -> Grant {
    let layer = Layer {
        origin: Origin::new(".harness/harness.md", Scope::Project),
        fs: Some(fs),
        network: None,
        exec: Some(exec),
        env: None,
        services: None,
        secrets: None,
        limits: LimitRules::default(),
    };
    Grant::new(vec![layer])
}

pub(super) fn command(program: &str, args: &[&str]) -> Command {
    Command {
        program: program.to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        dir: ".".to_owned(),
        env: Vec::new(),
        stdin: None,
        timeout_ms: 60_000,
    }
}

pub(super) fn sh(script: &str) -> Command {
    command("sh", &["-c", script])
}

/// A workspace with a folder open in it.
pub(super) struct Workspace {
    pub(super) root: TempDir,
    dir: Dir,
}

impl Workspace {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap();
        Self { root, dir }
    }

    pub(super) async fn run_in(&self, grant: &Grant, left: Duration, command: Command) -> Result<Output, Error> {
        self.run_with(grant, &Client::default(), left, command).await
    }

    /// As a server, which waits no time for a place.
    pub(super) async fn serve(&self, grant: &Grant, resources: &Resources, command: Command) -> Result<Service, Error> {
        let place = ExecContext {
            dir: &self.dir,
            workspace: self.root.path(),
            listings: &Arc::default(),
            handles: &Handles::default(),
            variables: &Variables::Host,
            http: &Client::default(),
        };
        let command =
            ServiceCommand { program: command.program, args: command.args, env: BTreeMap::new(), installed: None };
        start_service(grant, place, command, (resources, Duration::ZERO), LONG).await
    }

    /// With a client that knows names.
    pub(super) async fn run_with(
        &self,
        grant: &Grant,
        http: &Client,
        left: Duration,
        command: Command,
    ) -> Result<Output, Error> {
        let place = ExecContext {
            dir: &self.dir,
            workspace: self.root.path(),
            listings: &Arc::default(),
            handles: &Handles::default(),
            variables: &Variables::Host,
            http,
        };
        run(grant, place, left, command).await
    }
}

pub(super) async fn ran(grant: &Grant, command: Command) -> Result<Output, Error> {
    // The time it took is no fact to compare.
    Workspace::new().run_in(grant, LONG, command).await.map(|output| Output { duration_ms: 0, ..output })
}

fn output(stdout: &str, exit_code: i32) -> Output {
    Output {
        stdout: stdout.to_owned(),
        stderr: String::new(),
        exit_code,
        duration_ms: 0,
        timed_out: false,
        truncated: false,
    }
}

/// A number of seconds that no other test sleeps: what is looked for among all processes. The numbers that a command
/// knows its processes by are its own.
pub(super) fn mark() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("300.{}{:03}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// How many processes have a mark among their arguments and have not ended. One that ended and was not reaped does not
/// count: it has no arguments.
pub(super) fn marked(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
    let is_marked = |text: Vec<u8>| String::from_utf8_lossy(&text).contains(mark);
    processes.filter(|path| std::fs::read(path).is_ok_and(is_marked)).count()
}

/// Waits until so many processes have a mark.
pub(super) async fn until_marked(mark: &str, count: usize) {
    for _ in 0..600 {
        if marked(mark) == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} processes and not {count}", marked(mark));
}

#[tokio::test]
async fn a_granted_command_runs_and_others_do_not() {
    let echo = command("echo", &["a", "b c", "$HOME;*"]);
    assert_eq!(ran(&grant(&["echo a *"], &[]), echo.clone()).await, Ok(output("a b c $HOME;*\n", 0)));

    let denied = |hint: &str| {
        let hint = hint.to_owned();
        Err(Error::AccessDenied(Denial { reason: "the command `echo a b c $HOME;*` is not allowed".to_owned(), hint }))
    };
    let hint = "add `echo a \"b c\" \"$HOME;*\"` to `sandbox.exec.allow` in `.harness/harness.md`";
    assert_eq!(ran(&grant(&["echo b *", "cat"], &[]), echo.clone()).await, denied(hint));
    assert_eq!(ran(&grant(&[], &[]), echo.clone()).await, denied(hint));
    assert_eq!(ran(&Grant::new(vec![]), echo).await, denied(hint));
}

#[tokio::test]
async fn exit_codes_and_signals() {
    let grant = grant(&["sh"], &[]);
    for code in [0, 1, 3, 255] {
        assert_eq!(ran(&grant, sh(&format!("exit {code}"))).await, Ok(output("", code)));
    }
    assert_eq!(ran(&grant, sh("echo x; kill -9 $$")).await, Ok(output("x\n", -1)));
    let both = Output { stderr: "b\n".to_owned(), ..output("a\n", 0) };
    assert_eq!(ran(&grant, sh("echo a; echo b >&2")).await, Ok(both));
}

#[tokio::test]
async fn a_timeout_is_an_ending_with_what_was_printed() {
    let grant = grant(&["sh"], &[]);
    let workspace = Workspace::new();
    // A busy machine may not even start a command in a second: then it gets more time.
    let mut ended = None;
    for most in [1500, 6_000, 24_000] {
        let short = Duration::from_millis(most);
        let mut outputs = Vec::new();
        for (timeout_ms, left) in [(u32::try_from(most).unwrap(), LONG), (60_000, short), (0, short)] {
            let mark = mark();
            let script = sh(&format!("sleep {mark} & echo out; echo err >&2; wait"));
            let output = workspace.run_in(&grant, left, Command { timeout_ms, ..script }).await.unwrap();
            assert_eq!(marked(&mark), 0);
            assert!((most..most + 30_000).contains(&output.duration_ms), "{output:?}");
            outputs.push(Output { duration_ms: 0, ..output });
        }
        let in_time = outputs.iter().all(|output| !output.stderr.is_empty());
        ended = Some(outputs);
        if in_time {
            break;
        }
    }
    let want = Output {
        stdout: "out\n".to_owned(),
        stderr: "err\n".to_owned(),
        exit_code: -1,
        duration_ms: 0,
        timed_out: true,
        truncated: false,
    };
    assert_eq!(ended, Some(vec![want.clone(), want.clone(), want]));
}

#[tokio::test]
async fn what_a_command_leaves_behind_is_killed_and_is_not_waited_for() {
    let workspace = Workspace::new();
    let mark = mark();
    let output = workspace
        .run_in(&grant(&["sh"], &[]), LONG, sh(&format!("sleep {mark} & echo started; exit 4")))
        .await
        .unwrap();
    assert_eq!((output.stdout.as_str(), output.exit_code, output.timed_out), ("started\n", 4, false));
    assert!(output.duration_ms < 30_000);
    assert_eq!(marked(&mark), 0);
}

/// The shell is one of them, and the process that it waits for another.
#[tokio::test]
async fn dropping_the_call_kills_all_of_it() {
    let workspace = Workspace::new();
    let grant = grant(&["sh"], &[]);
    let mark = mark();
    let script = sh(&format!("sleep {mark} & wait"));
    tokio::select! {
        output = workspace.run_in(&grant, LONG, script) => panic!("it ended: {output:?}"),
        () = until_marked(&mark, 2) => {}
    };
    until_marked(&mark, 0).await;
}

#[tokio::test]
async fn long_output_is_cut_and_a_flood_is_stopped() {
    let grant = grant(&["sh", "yes"], &[]);
    let long = ran(&grant, sh("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2; exit 2")).await.unwrap();
    let want = Output { stderr: "end\n".to_owned(), truncated: true, ..output(&"x".repeat(1 << 20), 2) };
    assert!(long == want, "{} {} {}", long.stdout.len(), long.stderr, long.exit_code);

    let flood = ran(&grant, command("yes", &[])).await.unwrap();
    let want = Output { truncated: true, ..output(&"y\n".repeat(1 << 19), -1) };
    assert!(flood == want, "{} {} {}", flood.stdout.len(), flood.exit_code, flood.timed_out);
}

#[tokio::test]
async fn standard_input_is_what_was_given() {
    let grant = grant(&["cat", "wc", "true"], &[]);
    let with = |program: &str, text: &str| Command { stdin: Some(text.to_owned()), ..command(program, &[]) };
    assert_eq!(ran(&grant, with("cat", "höllo\0\n")).await, Ok(output("höllo\0\n", 0)));
    assert_eq!(ran(&grant, with("cat", "")).await, Ok(output("", 0)));
    assert_eq!(ran(&grant, command("cat", &[])).await, Ok(output("", 0)));
    // More than pipes hold, in both directions at once, and to a child that does not read.
    let big = "x".repeat(10 << 20);
    assert_eq!(ran(&grant, with("wc", &big)).await.map(|output| output.stdout.contains("10485760")), Ok(true));
    assert_eq!(
        ran(&grant, with("cat", &big)).await.map(|output| (output.stdout.len(), output.truncated)),
        Ok((1 << 20, true))
    );
    assert_eq!(ran(&grant, with("true", &big)).await, Ok(output("", 0)));
}

#[tokio::test]
async fn variables_are_exactly_those_that_are_granted() {
    let env = command("env", &[]);
    let path = "PATH=/usr/local/bin:/usr/bin:/bin\n";
    let stdout = ran(&grant(&["env"], &[]), env.clone()).await.unwrap().stdout;
    let (folder, rest): (Vec<_>, Vec<_>) = stdout.lines().partition(|line| line.starts_with("TMPDIR=/"));
    assert_eq!((folder.len(), rest.join("\n") + "\n"), (1, path.to_owned()));

    let plain = |text: &str| !text.is_empty() && !text.contains('\n');
    let (name, value) = std::env::vars()
        .find(|(name, value)| !matches!(name.as_str(), "PATH" | "TMPDIR") && plain(name) && plain(value))
        .unwrap();
    let granted = grant(&["env"], &[&name, "NO_SUCH_VARIABLE", "GIVEN"]);
    let given = Command { env: vec![("GIVEN".to_owned(), "a b".to_owned())], ..env.clone() };
    let mut want = vec![format!("{name}={value}"), "GIVEN=a b".to_owned(), path.trim_end().to_owned()];
    want.sort_unstable();
    let stdout = ran(&granted, given).await.unwrap().stdout;
    let mut lines: Vec<_> = stdout.lines().filter(|line| !line.starts_with("TMPDIR=")).collect();
    lines.sort_unstable();
    assert_eq!(lines, want);

    for name in ["LD_PRELOAD", "OTHER", "A=B", "PATH"] {
        let given = Command { env: vec![(name.to_owned(), "x".to_owned())], ..env.clone() };
        assert!(matches!(ran(&granted, given).await, Err(Error::AccessDenied(_))), "{name}");
    }
    let host = ran(&grant(&["env"], &["PATH"]), env).await.unwrap().stdout;
    assert!(host.contains("PATH=/") && host.lines().count() == 2, "{host}");
}

#[tokio::test]
async fn it_starts_in_the_open_folder_and_finds_nothing_in_the_workspace() {
    let workspace = Workspace::new();
    let inner = workspace.root.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let dir = Dir::open_ambient_dir(&inner, ambient_authority()).unwrap();
    // Renamed and replaced after it was opened: the handle counts, not the name.
    let moved = workspace.root.path().join("moved");
    std::fs::rename(&inner, &moved).unwrap();
    std::os::unix::fs::symlink("/", &inner).unwrap();
    std::fs::copy("/bin/echo", moved.join("mytool")).unwrap();

    let grant = grant(&["sh", "mytool"], &[]);
    let place = ExecContext {
        dir: &dir,
        workspace: workspace.root.path(),
        listings: &Arc::default(),
        handles: &Handles::default(),
        variables: &Variables::Host,
        http: &Client::default(),
    };
    let output = run(&grant, place, LONG, sh("pwd -P")).await.unwrap();
    assert_eq!(output.stdout.trim_end(), moved.canonicalize().unwrap().display().to_string());
    assert_eq!(run(&grant, place, LONG, command("mytool", &[])).await, Err(Error::NotFound("mytool".to_owned())));
}

#[tokio::test]
async fn programs_are_names_or_granted_absolute_paths() {
    let by_name = grant(&["sh"], &[]);
    let by_path = grant(&["/bin/sh", "/no/such/program"], &[]);
    let path = || command("/bin/sh", &["-c", "echo $0"]);
    assert_eq!(ran(&by_path, path()).await, Ok(output("/bin/sh\n", 0)));
    assert_eq!(ran(&by_name, sh("echo $0")).await, Ok(output("sh\n", 0)));
    assert!(matches!(ran(&by_name, path()).await, Err(Error::AccessDenied(_))));
    assert!(matches!(ran(&by_path, sh("echo $0")).await, Err(Error::AccessDenied(_))));
    assert_eq!(
        ran(&by_path, command("/no/such/program", &[])).await,
        Err(Error::NotFound("/no/such/program".to_owned()))
    );
    let unknown = grant(&["no-such-program"], &[]);
    assert_eq!(
        ran(&unknown, command("no-such-program", &[])).await,
        Err(Error::NotFound("no-such-program".to_owned()))
    );
}

#[tokio::test]
async fn a_file_that_the_host_has_open_is_not_open_in_the_child() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().file_name().unwrap().to_str().unwrap();
    let seen = ran(&grant(&["ls"], &[]), command("ls", &["-l", "/proc/self/fd"])).await.unwrap();
    assert!(seen.stdout.contains("pipe:") && !seen.stdout.contains(name), "{seen:?}");
}

#[tokio::test]
async fn what_cannot_be_a_command_is_said_before_the_grant_is_asked() {
    let none = Grant::new(vec![]);
    let echo = || command("echo", &[]);
    for wrong in [
        command("", &[]),
        command("a\nb", &[]),
        command("a\0", &[]),
        command("./echo", &[]),
        command(&"x".repeat(4097), &[]),
        command("echo", &["a\0"]),
        command("echo", &["x"; 1025]),
        command("echo", &[&"x".repeat((1 << 20) + 1)]),
        Command { env: vec![("A".to_owned(), "x\0".to_owned())], ..echo() },
        Command { env: vec![("A".to_owned(), String::new()); 65], ..echo() },
        Command { env: vec![("A".to_owned(), "x".repeat(1 << 20))], ..echo() },
        Command { stdin: Some("x".repeat((10 << 20) + 1)), ..echo() },
    ] {
        let ran = ran(&none, wrong).await;
        assert!(matches!(ran, Err(Error::InvalidCommand(_))), "{ran:?}");
    }
    for fine in [echo(), command(&"x".repeat(4096), &[]), command("echo", &["x"; 1024]), command("echo", &["a\n"])] {
        assert!(matches!(ran(&none, fine).await, Err(Error::AccessDenied(_))));
    }
    // The system's own limit on one argument is lower than ours.
    let long = ran(&grant(&["echo"], &[]), command("echo", &[&"x".repeat(1 << 20)])).await;
    assert!(matches!(&long, Err(Error::Start(why)) if !why.contains('/')), "{long:?}");
}
