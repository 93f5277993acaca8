//! Servers whose commands are package runners: what is fetched for them, from where, and what is started then. The
//! installers are stand-ins; the registry is a host that says what a package holds.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::mock;
use crate::project::{Project, Ran};

/// An installer: it asks the registry and installs a package `tool`, as `npm` and `uv` lay it out. What it could reach of the
/// machine is a file of the package.
const INSTALLER: &str = r#"#!/bin/bash
set -u
trap '' PIPE
python=
for arg in "$@"; do
  case $arg in
    --registry=* | --default-index=*) url=${arg#*=http://} ;;
    --prefix=*) tree=${arg#*=} ;;
    --target=*) tree=${arg#*=} python=yes ;;
  esac
done
place=${url%%/*}
if ! exec 3<>"/dev/tcp/${place%:*}/${place#*:}"; then
  echo "npm error code EAI_AGAIN" >&2
  exit 1
fi
printf 'GET / HTTP/1.0\r\n\r\n' >&3 2>/dev/null
content=$(cat <&3 2>/dev/null)
[ -n "$content" ] || { echo 'npm error code EMPTY' >&2; exit 1; }
case $content in fails*) printf 'npm error code E404\nnpm error 404 no tool\n' >&2; exit 1 ;; esac
[ -n "$python" ] && package=$tree/tool programs=$tree/bin || package=$tree/node_modules/tool programs=$tree/node_modules/.bin
mkdir -p "$package" "$programs"
printf '{"name":"tool","bin":{"tool":"run"}}' >"$package/package.json"
printf '%s' "$content" >"$package/content"
printf 'authorities' >"$package/cacert.pem"
printf '#!/bin/sh\nARGS="$*" OWN=$0 PEM=$(cat "${0%%/*}/cacert.pem") exec SERVER --ignored --exact mock::serve --nocapture --test-threads=1\n' >"$package/run"
chmod +x "$package/run"
if [ -n "$python" ]; then cp "$package/run" "$programs/tool"; else ln -s ../tool/run "$programs/tool"; fi
case $content in link*) ln -s WORKSPACE "$package/link" ;; esac
case $content in moves*) rm -r "$tree"; ln -s WORKSPACE "$tree" ;; esac
case $content in inner*) rm -r "$tree/node_modules"; ln -s WORKSPACE/node_modules "$tree/node_modules" ;; esac
case $content in none*) rm -r "$programs" ;; esac
# What differs each time.
date +%N >"$tree/${python:+.lock}${python:-node_modules/.package-lock.json}" 2>/dev/null
[ -n "$python" ] && mv "$tree/.lockyes" "$tree/.lock"
{
  cat WORKSPACE/docs/a.md || echo "no workspace"
  (exec 4<>/dev/tcp/localhost/OTHER && cat <&4) || echo "no other host"
  echo "secret: ${TOKEN-none}, home: ${HOME##*/}, registry: ${npm_config_registry-none}"
  [ -e "$(dirname "$0")/../home" ] && echo "the home folder"
} >"$package/reached" 2>/dev/null
exit 0
"#;

/// A registry, and how often it was asked.
struct Registry {
    port: u16,
    asked: Arc<Mutex<usize>>,
    content: Arc<Mutex<String>>,
}

impl Registry {
    fn new(content: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, content) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(content.to_owned())));
        let of_thread = (asked.clone(), content.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 256]);
                *of_thread.0.lock().unwrap() += 1;
                let _ = stream.write_all(of_thread.1.lock().unwrap().as_bytes());
            }
        });
        Self { port, asked, content }
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    fn gives(&self, content: &str) {
        *self.content.lock().unwrap() = content.to_owned();
    }
}

/// A project, the operator's own folder with installers and caches, and a registry.
struct World {
    project: Project,
    own: TempDir,
    registry: Registry,
}

impl World {
    /// With this command of the server `s`.
    fn new(command: &str) -> Self {
        let registry = Registry::new("one");
        let project = Project::new().file("docs/a.md", "of the workspace\n");
        let own = tempfile::tempdir().unwrap();
        let (server, _) = mock::program();
        let other = Registry::new("of another host").port.to_string();
        let installer = INSTALLER.replace("WORKSPACE", &project.root().canonicalize().unwrap().display().to_string());
        let installer = installer.replace("OTHER", &other).replace("SERVER", &server.display().to_string());
        std::fs::create_dir(own.path().join("bin")).unwrap();
        for name in ["npm", "uv"] {
            let path = own.path().join("bin").join(name);
            std::fs::write(&path, &installer).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let world = Self { project, own, registry };
        let policy = format!("mcp:\n  servers:\n    s: {{ command: {command}, {} }}\n", world.entry());
        Self { project: world.project.policy(&policy), ..world }
    }

    /// What else its entry says.
    fn entry(&self) -> String {
        let (_, server) = mock::program();
        let folders = json!([self.bin(), server]);
        let env = json!({"PATH": self.path(), "BEHAVIOR": "modern", "TOKEN": "of the server"});
        format!("folders: {folders}, env: {env}, fs: {{ read: [docs] }}")
    }

    fn bin(&self) -> PathBuf {
        self.own.path().canonicalize().unwrap().join("bin")
    }

    fn path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.bin().display())
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.project.command(arguments);
        let url = format!("http://localhost:{}/", self.registry.port);
        command.env("XDG_CACHE_HOME", self.own.path().join("cache"));
        command.env("npm_config_registry", &url).env("UV_DEFAULT_INDEX", url);
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.project.ran(&self.command(arguments).output().unwrap())
    }

    /// Locks it, for the first time.
    fn locked(self) -> Self {
        let ran = self.run(&["lock"]);
        assert_eq!((ran.code, ran.err.as_str(), self.registry.asked()), (0, "", 1), "{ran}");
        self
    }

    fn lock(&self) -> String {
        std::fs::read_to_string(self.project.path("harness.lock")).unwrap()
    }

    /// The folder of its packages.
    fn tree(&self) -> PathBuf {
        let lock = self.lock();
        let digest = lock.split("packages = \"sha256:").nth(1).unwrap().split('"').next().unwrap();
        self.packages().join(digest)
    }

    fn packages(&self) -> PathBuf {
        self.own.path().join("cache/harness/packages")
    }

    /// A variable of the server's.
    fn variable(&self, name: &str) -> (i32, String) {
        let ran = self.run(&["call", "s_variable", "--args", &json!({"name": name}).to_string()]);
        (ran.code, if ran.code == 0 { ran.out } else { ran.err })
    }

    /// The same with another `PATH` of the server.
    fn with_path(self, path: &str) -> Self {
        let own = self.path();
        Self { project: self.project.policy_of(|text| text.replace(&own, path)), ..self }
    }

    fn starts(&self) -> bool {
        self.variable("BEHAVIOR") == (0, "modern\n".to_owned())
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

const NPX: &str = "[npx, -y, \"tool@1.0.0\", --flag]";

#[test]
fn packages_are_fetched_once_locked_and_started_from_there() {
    let world = World::new(NPX).locked();
    let (lock, tree) = (world.lock(), world.tree());
    let before = lock.split("before = \"").nth(1).unwrap();
    assert!(before.len() > 21 && &before[10..11] == "T" && &before[19..21] == "Z\"", "{lock}");
    // The runner is not started, the program is, with its arguments alone.
    assert_eq!(world.variable("ARGS"), (0, "--flag\n".to_owned()));
    let own = tree.canonicalize().unwrap().join("node_modules/tool/run");
    assert_eq!(world.variable("OWN"), (0, format!("{}\n", own.display())));
    assert_eq!(world.variable("TOKEN"), (0, "of the server\n".to_owned()));
    // A file of a package is no secret of the operator, whatever it is called.
    assert_eq!(world.variable("PEM"), (0, "authorities\n".to_owned()));
    // What the installer has left for itself is gone, and nothing else lies about.
    assert!(!tree.join("node_modules/.package-lock.json").exists() && tree.join("node_modules/tool/content").exists());
    let mut left: Vec<String> = std::fs::read_dir(world.packages())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort_by_key(String::len);
    assert_eq!(left.iter().map(String::len).collect::<Vec<_>>(), [64, 69], "{left:?}");
    // Offline.
    let same = "harness.lock: 0 tools, 0 hooks, 0 agents, 0 bundles, 1 server, 0 changed";
    world.run(&["lock"]).gives(same);
    world.run(&["lock", "--check"]).gives("matches the lock: 0 tools, 0 hooks, 0 agents, 0 bundles, 1 server");
    world.run(&["mcp", "fetch"]).gives(&format!("s  sha256:{}", tree.file_name().unwrap().to_str().unwrap()));
    assert_eq!((world.registry.asked(), world.lock() == lock), (1, true));
    // Fetched once more, and the same.
    world.run(&["lock", "--fetch"]).gives(same);
    assert_eq!((world.registry.asked(), world.lock() == lock), (2, true));
    // And another one, which is shown.
    world.registry.gives("two");
    let ran = world.run(&["lock", "--fetch"]);
    assert!(ran.err.contains("the server `s` differs from `harness.lock`: its packages changed"), "{ran}");
    assert_ne!(world.tree(), tree);
    assert!(world.starts());
}

#[test]
fn the_installer_reaches_the_registry_and_nothing_else() {
    let world = World::new(NPX).locked();
    let reached = read(&world.tree().join("node_modules/tool/reached"));
    assert_eq!(reached, "no workspace\nno other host\nsecret: none, home: home, registry: none\n");
    // Without a registry there is nothing to reach.
    let world = World::new(NPX);
    let ran = world
        .project
        .ran(&world.command(&["lock"]).env("npm_config_registry", "http://localhost:1/").output().unwrap());
    let why = "the server `s` cannot be locked: its packages cannot be fetched: code EMPTY";
    assert!(ran.code == 1 && ran.err.contains(why), "{ran}");
}

#[test]
fn packages_that_changed_are_not_started() {
    let world = World::new(NPX).locked();
    let tree = world.tree();
    std::fs::write(tree.join("node_modules/tool/content"), "other").unwrap();
    let (code, err) = world.variable("BEHAVIOR");
    let real = tree.display().to_string();
    let why = format!("the MCP server `s`: its packages cannot be used: `{real}` was changed: remove it");
    assert!(code == 1 && err.contains(&why), "{code} {err}");
    std::fs::remove_dir_all(&tree).unwrap();
    let (code, err) = world.variable("BEHAVIOR");
    let missing = "its packages are not on this machine: `harness mcp fetch s` fetches them";
    assert!(code == 1 && err.contains(missing), "{code} {err}");
    // A link is no such folder.
    symlink("/", &tree).unwrap();
    assert_eq!(world.variable("BEHAVIOR").0, 1);
    std::fs::remove_file(&tree).unwrap();
    // Those of the lock are fetched, and others are not taken for them.
    assert_eq!(world.run(&["mcp", "fetch", "s"]).code, 0);
    assert!(world.starts());
    std::fs::remove_dir_all(&tree).unwrap();
    world.registry.gives("two");
    let ran = world.run(&["mcp", "fetch", "s"]);
    let differs = "the server `s`: the server `s` differs from `harness.lock`: its packages changed";
    assert!(ran.code == 1 && ran.err.contains(differs), "{ran}");
    assert!(!world.starts());
    let ran = world.run(&["lock"]);
    assert!(ran.err.contains("its packages changed"), "{ran}");
    assert!(world.starts());
}

#[test]
fn packages_that_are_not_locked_are_not_started() {
    let world = World::new(NPX).locked();
    let lock: String = world
        .lock()
        .lines()
        .filter(|line| !line.starts_with("packages") && !line.starts_with("before"))
        .map(|line| format!("{line}\n"))
        .collect();
    world.project.write("harness.lock", &lock);
    let (code, err) = world.variable("BEHAVIOR");
    assert!(code == 3 && err.contains("the packages of the server `s` are not locked"), "{code} {err}");
    assert!(err.contains("`harness lock` fetches and locks them"), "{err}");
    let ran = world.run(&["lock"]);
    assert!(ran.code == 0 && ran.err.contains("its packages changed"), "{ran}");
    assert!(world.starts());
}

#[test]
fn a_package_of_python_finds_its_modules() {
    let world = World::new("[uvx, \"tool==1.0\", --flag]").locked();
    assert_eq!(world.variable("ARGS"), (0, "--flag\n".to_owned()));
    let python = world.tree().canonicalize().unwrap().join("python");
    assert_eq!(world.variable("PYTHONPATH"), (0, format!("{}\n", python.display())));
    assert!(!python.join(".lock").exists());
    // Fetched once more, and the same.
    world.run(&["lock", "--fetch"]).gives("harness.lock: 0 tools, 0 hooks, 0 agents, 0 bundles, 1 server, 0 changed");
}

#[test]
fn a_version_that_floats_is_fetched_and_locked_where_the_policy_lets_it() {
    let ran = World::new("[npx, tool]").run(&["lock"]);
    assert!(ran.code == 2 && ran.err.contains("`npx` starts `tool` without an exact version"), "{ran}");
    let world = World::new("[npx, tool], floating: true").locked();
    world.registry.gives("two");
    world.run(&["lock"]).gives("harness.lock: 0 tools, 0 hooks, 0 agents, 0 bundles, 1 server, 0 changed");
    assert!(world.starts());
    assert!(world.run(&["lock", "--fetch"]).err.contains("its packages changed"));
}

#[test]
fn fetching_needs_no_variable_of_the_server() {
    let world = World::new(NPX);
    let unset = |text: &str| text.replace("of the server", "{env:MISSING}");
    let world = World { project: world.project.policy_of(unset), ..world };
    assert_eq!((world.run(&["mcp", "fetch"]).code, world.registry.asked()), (0, 1));
    let ran = world.run(&["lock"]);
    assert!(ran.code == 1 && ran.err.contains("the variable `MISSING` is not set"), "{ran}");
}

#[test]
fn the_machine_has_its_say() {
    let world = World::new(NPX);
    let with = |exec: &str| {
        let policy = format!("sandbox:\n  exec: {exec}\n");
        std::fs::write(world.own.path().join("machine.yaml"), policy).unwrap();
        let file = world.own.path().join("machine.yaml").display().to_string();
        world.run(&["--policy", &file, "lock"])
    };
    let folders = json!([world.bin(), mock::program().1]);
    // Without a network for commands, without the runner, and without the registry among the hosts.
    for (allow, network, why) in [
        ("npx *", "false", "Permission denied"),
        ("node *", "true", "the command `npx -y tool@1.0.0 --flag` is not allowed"),
        ("npx *", "[registry.example.com]", "Connection refused"),
    ] {
        let ran = with(&format!("{{ allow: [\"{allow}\"], network: {network}, folders: {folders} }}"));
        assert_eq!((ran.code, world.registry.asked()), (1, 0), "{allow} {network}: {ran}");
        assert!(ran.err.contains("the server `s` cannot be locked: ") && ran.err.contains(why), "{ran}");
    }
    let ran = with(&format!("{{ allow: [\"npx *\"], network: true, folders: {folders} }}"));
    assert_eq!((ran.code, world.registry.asked()), (0, 1), "{ran}");
}

#[test]
fn what_cannot_be_fetched_or_kept_is_said() {
    let locks = |content: &str| {
        let world = World::new(NPX);
        world.registry.gives(content);
        world.project.write("node_modules/.package-lock.json", "of the workspace");
        let ran = world.run(&["lock"]);
        // Whatever the installer leaves, the host touches nothing else.
        assert_eq!(read(&world.project.path("node_modules/.package-lock.json")), "of the workspace");
        assert!(!world.project.path("harness.lock").exists(), "{content}");
        assert_eq!(ran.code, 1, "{ran}");
        ran.err
    };
    let begins = "the server `s` cannot be locked: ";
    assert!(locks("fails").contains(&format!("{begins}its packages cannot be fetched: code E404; 404 no tool")));
    assert!(locks("link").contains("node_modules/tool/link` is a link that leads out of it"));
    assert!(locks("moves").contains("/tree` is not a folder"));
    assert!(locks("inner").contains("/tree/node_modules` is not a folder"));
    assert!(locks("none").contains(&format!("{begins}its packages have no program `tool`")));
    // Where a tool could write them.
    let world = World::new(NPX);
    let mut command = world.command(&["lock"]);
    let inside = world.project.root().canonicalize().unwrap().join("docs");
    let ran = world.project.ran(&command.env("XDG_CACHE_HOME", &inside).output().unwrap());
    assert!(ran.code == 1 && ran.err.contains("which is in the workspace: set `XDG_CACHE_HOME`"), "{ran}");
    // Without an installer.
    let ran = world.with_path("/usr/sbin").run(&["lock"]);
    assert!(ran.code == 1 && ran.err.contains("there is no program `npm` to fetch its packages"), "{ran}");
}

#[test]
fn a_server_that_cannot_be_read_stays_as_it_was_locked() {
    let world = World::new(NPX);
    let two = mock::entry("m", "modern", "");
    let world = World {
        project: world.project.policy_of(|text| text.replace("servers:\n", &format!("servers:\n{two}"))),
        ..world
    };
    // Without one that was never read, nothing is locked.
    world.registry.gives("fails");
    let ran = world.run(&["lock"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran}");
    assert!(!world.project.path("harness.lock").exists());
    // One that was is as it was, and the other is read.
    world.registry.gives("one");
    assert_eq!(world.run(&["lock"]).code, 0);
    let lock = world.lock();
    world.registry.gives("fails");
    let ran = world.run(&["lock", "--fetch"]);
    assert!(ran.code == 1 && ran.err.contains("the server `s` cannot be locked: "), "{ran}");
    assert!(world.lock() == lock && world.starts());
    let ran = world.run(&["lock", "--fetch", "--check"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran}");
}

#[test]
fn adding_a_server_fetches_its_packages() {
    let world = World::new(NPX);
    let world = World { project: world.project.policy(""), ..world };
    // Where commands see programs: an entry that is added opens no folder.
    let add = |name: &str, path: &str| {
        let path = format!("PATH={path}");
        world.run(&["mcp", "add", name, "--env", &path, "--", "npx", "tool@1.0.0"])
    };
    let ran = add("s", &world.path());
    assert_eq!((ran.code, world.registry.asked()), (1, 0), "{ran}");
    assert!(ran.err.contains("`npm` is in none of the folders that commands see"), "{ran}");
    assert!(ran.err.contains("`s` is in the policy without them: `harness mcp fetch s` tries again"), "{ran}");
    assert_eq!(world.run(&["mcp", "list"]).out, "s  npx tool@1.0.0  (keep: run; not locked)\n");
    // With that folder they are fetched, and `lock` needs the registry no more.
    let folders = json!([world.bin(), mock::program().1]).to_string();
    let open = |text: String| text.replace("env: {", &format!("folders: {folders}, env: {{ BEHAVIOR: modern,"));
    let world = World { project: world.project.policy_of(|text| open(text.to_owned())), ..world };
    assert_eq!((world.run(&["mcp", "fetch"]).code, world.registry.asked()), (0, 1));
    assert_eq!((world.run(&["lock"]).code, world.registry.asked()), (0, 1));
    assert!(world.starts());
    let ran = world.run(&["mcp", "fetch", "other"]);
    assert!(ran.code == 2 && ran.err.contains("there is no server `other`"), "{ran}");
    let none = World { project: Project::new().policy(""), ..world };
    let ran = none.run(&["mcp", "fetch"]);
    assert!(ran.code == 0 && ran.err.contains("no packages: no server's command is a package runner"), "{ran}");
}

#[test]
fn a_client_has_a_server_of_a_package_behind_the_wall() {
    let world = World::new(NPX);
    let folders: Vec<String> =
        [world.bin(), mock::program().1].iter().map(|folder| folder.display().to_string()).collect();
    let path = format!("PATH={}", world.path());
    let wrap = || {
        let options = ["mcp", "wrap", "--folder", &folders[0], "--folder", &folders[1], "--env", &path];
        let command = ["--env", "BEHAVIOR=modern", "--", "npx", "-y", "tool@1.0.0", "--flag"];
        let mut command = world.command(&[&options[..], &command].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    for _ in 0..2 {
        let mut child = wrap();
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "variable", "arguments": {"name": "ARGS"}}});
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{request}").unwrap();
        // This server says other things first.
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let answer = lines.map(Result::unwrap).find(|line| line.starts_with('{')).unwrap();
        let answer: Json = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], Json::from("--flag"), "{answer}");
        drop(input);
        child.wait().unwrap();
    }
    assert_eq!(world.registry.asked(), 1);
}
