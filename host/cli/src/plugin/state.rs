//! The project that a command of plugins changes: its lock, its policy and the cache. A change is loaded as a whole before
//! any of it is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness_artifact::alike::is_alike;
use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::plugin::Rule;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::catalogues::NamedCatalogue;
use harness_artifact::policy::trusted::{self, TrustedSource};
use harness_artifact::yaml::flow;
use harness_capability::env::Variables;
use harness_capability::secrets::Vault;
use harness_fetch::Credentials;
use harness_plugin::cache::Cache;
use harness_plugin::content::Content;
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Scope};
use harness_policy::limits::LimitKey;
use harness_policy::secret::Secret;
use harness_registry::lock::{self, Lock, LockedPlugin};
use harness_registry::repository::Repository;
use harness_registry::{Host, Machine, Proposal, Registry};
use harness_sys as sys;
use harness_sys::digest::digest;
use harness_sys::{output, tree};
use harness_wall::ClosedNames;
use serde_json::{Map, Value as Json};

use crate::args::ProjectArgs;
use crate::edit;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

/// A project and what it is loaded with.
pub(super) struct State {
    /// Its folder, without links.
    pub(super) root: PathBuf,
    machine: Machine,
    plugins: Option<PathBuf>,
    /// Its lock, or an empty one of plugins.
    pub(super) lock: Lock,
    printer: Printer,
}

/// The policy of a project as text.
#[derive(Clone)]
pub(super) struct PolicyText {
    /// Its file.
    pub(super) file: String,
    pub(super) text: String,
}

/// How a source is fetched.
pub(super) struct Reach {
    /// The layers of the host policy.
    pub(super) machine: Vec<Arc<Layer>>,
    /// Whether the source may be at an address that is not public.
    pub(super) is_private: bool,
    /// The login at a registry.
    pub(super) credentials: Option<Credentials>,
}

/// The keys of the entry of a source.
fn path_of(source: &str) -> [&str; 3] {
    ["sandbox", "sources", source]
}

/// `trusted_sources` of the host policy and of the project's.
fn trusted_lists(policy: &ProjectPolicy) -> [&[TrustedSource]; 2] {
    let of_machine = policy.machine.as_ref().map(|machine| machine.trusted.as_slice()).unwrap_or_default();
    [of_machine, policy.trusted.as_slice()]
}

/// The layers of the host policy.
fn of_machine(policy: &ProjectPolicy) -> Vec<Arc<Layer>> {
    let layers = policy.grant_for("", None).layers().to_vec();
    layers.into_iter().filter(|layer| layer.origin.scope == Scope::Machine).collect()
}

impl State {
    /// The project of a command. What is wrong with its lock was reported.
    pub(super) fn open(place: &ProjectArgs, printer: Printer) -> Result<Self, Exit> {
        let root = project::there(place, printer)?;
        let root = sys::real_path(&root).map_err(|error| {
            printer.error(&format!("`{}` cannot be read: {error}", root.display()), &[], None);
            Exit::Usage
        })?;
        let lock = Registry::read_lock(&root).map_err(|wrong| {
            printer.problem(&wrong, &wrong.render(None, printer.color()));
            Exit::Usage
        })?;
        let lock = lock.unwrap_or_else(Lock::of_plugins);
        let plugins = harness_dispatch::plugins(&Variables::Host);
        Ok(Self { root, machine: project::machine(place), plugins, lock, printer })
    }

    pub(super) fn host(&self) -> Host<'_> {
        Host::new(&self.machine, self.plugins.clone())
    }

    /// The project as it is, whatever its lock says of its own artifacts.
    pub(super) fn unlocked(&self) -> Registry {
        Registry::load_unlocked(&self.root, self.host())
    }

    /// The cache of the machine.
    pub(super) fn cache(&self) -> Result<Cache, Exit> {
        let folder = self.plugins.clone().ok_or_else(|| {
            self.printer.error("there is no folder for plugins", &[], Some("set `XDG_CACHE_HOME` or `HOME`"));
            Exit::Usage
        })?;
        Ok(Cache::new(folder))
    }

    /// The limits that the host policy lowers, as keys of `limits`.
    pub(super) fn limits(&self) -> Map<String, Json> {
        let registry = self.unlocked();
        let layers = registry.policy().map(of_machine).unwrap_or_default();
        let machine = Grant::new(layers.iter().map(|layer| Layer::clone(layer)).collect());
        let lowered = LimitKey::ALL.iter().filter_map(|key| {
            let (value, facts) = (machine.limit(*key).0, key.facts());
            (value < facts.default).then(|| (facts.name.to_owned(), value.into()))
        });
        lowered.collect()
    }

    /// How a source is fetched: what the policies say of it. A broken policy, and that they refuse the source, was reported.
    pub(super) fn reach(&self, source: &str) -> Result<Reach, Exit> {
        let policy = &self.bare_policy()?;
        let lists = trusted_lists(policy);
        let entry = |list: &[TrustedSource]| list.iter().find(|entry| entry.rule.source.matches(source)).cloned();
        if lists.iter().any(|list| !list.is_empty() && entry(list).is_none()) {
            let why = format!("`{source}` is refused: no entry of `trusted_sources` is about it");
            self.printer.error(&why, &[], Some("add an entry with its `source`, in each policy that has the list"));
            return Err(Exit::Denied);
        }
        let credentials = entry(&policy.trusted).and_then(|entry| entry.credentials);
        let credentials = credentials.map(|name| self.credentials(policy, &name)).transpose()?;
        Ok(Reach { machine: of_machine(policy), is_private: trusted::is_private(&lists, source), credentials })
    }

    /// How a catalogue is fetched. The policy names it: no entry of `trusted_sources` has to, unless it is at an address that
    /// is not public.
    pub(super) fn reach_of_catalogue(&self, source: &str) -> Result<Reach, Exit> {
        let policy = &self.bare_policy()?;
        let is_private = trusted::is_private(&trusted_lists(policy), source);
        Ok(Reach { machine: of_machine(policy), is_private, credentials: None })
    }

    /// The catalogues of the policy. A broken policy, and that the host policy refuses one, was reported.
    pub(super) fn catalogues(&self) -> Result<Vec<NamedCatalogue>, Exit> {
        let policy = self.bare_policy()?;
        let most = policy.machine.as_ref().and_then(|machine| machine.catalogues.as_ref());
        let is_refused = |one: &&NamedCatalogue| {
            most.is_some_and(|patterns| !patterns.iter().any(|pattern| pattern.matches(&one.source)))
        };
        if let Some(refused) = policy.catalogues.iter().find(is_refused) {
            let what = format!("the host policy refuses the catalogue `{}` at `{}`", refused.name, refused.source);
            self.printer.error(
                &what,
                &[],
                Some("`catalogues` of the host policy lists the sources that a project may name"),
            );
            return Err(Exit::Denied);
        }
        Ok(policy.catalogues)
    }

    /// The policy without the plugins of the lock and without repositories: they may have to be fetched first. A broken one was
    /// reported.
    fn bare_policy(&self) -> Result<ProjectPolicy, Exit> {
        let proposal = Proposal { bare: true, ..Proposal::default() };
        let registry = Registry::load_proposed(&self.root, self.host(), &proposal);
        registry.policy().cloned().ok_or_else(|| {
            project::report(&registry, self.printer);
            Exit::Usage
        })
    }

    /// The git repositories that the policy names and trusts. One that it does not was reported.
    pub(super) fn repositories(&self) -> Result<Vec<Repository>, Exit> {
        let policy = self.bare_policy()?;
        let trusted = |repository: Repository| repository.check_trust(&policy).map(|()| repository);
        let all = Repository::all(&policy).into_iter().map(|one| one.and_then(trusted));
        all.collect::<Result<_, _>>().map_err(|wrong| self.report(&wrong))
    }

    /// Reports what is wrong in a file of the project.
    pub(super) fn report(&self, wrong: &Diagnostic) -> Exit {
        let text = wrong.position.as_ref().and_then(|at| sys::read_text(&self.root.join(&*at.file)).ok());
        self.printer.problem(wrong, &wrong.render(text.as_deref(), self.printer.color()));
        Exit::Usage
    }

    /// A secret that a registry is shown.
    fn credentials(&self, policy: &ProjectPolicy, name: &str) -> Result<Credentials, Exit> {
        let secret = policy.secrets.iter().find(|secret| secret.name == name);
        let value = |secret: &Secret| {
            let vault = Vault::open([secret], [], &self.root, &Variables::Host);
            vault.open_for_server(name).map(str::to_owned).map_err(|refusal| refusal.reason)
        };
        let found = match secret {
            Some(secret) => value(secret).map(|value| (value, secret.hosts.clone())),
            None => Err(format!("`sandbox.secrets` has no `{name}`")),
        };
        let (value, hosts) = found.map_err(|why| {
            self.printer.error(&format!("the `credentials` of the source cannot be used: {why}"), &[], None);
            Exit::Usage
        })?;
        Ok(Credentials { name: name.to_owned(), value, hosts })
    }

    /// Keeps a content in the cache.
    pub(super) fn keep(&self, content: &Content) -> Result<(), Exit> {
        let kept = self.cache()?.keep(content);
        kept.map(drop).map_err(|why| {
            self.printer.error(&format!("cannot keep the plugin: {why}"), &[], None);
            Exit::Fault
        })
    }

    /// A plugin of the lock.
    pub(super) fn locked(&self, name: &str) -> Result<&LockedPlugin, Exit> {
        self.lock.plugin(name).ok_or_else(|| {
            let hint = "`harness plugin list` lists them";
            self.printer.error(&format!("`{}` has no plugin `{name}`", lock::FILE), &[], Some(hint));
            Exit::Usage
        })
    }

    /// The plugins of the lock whose names look like this one.
    pub(super) fn alike(&self, name: &str) -> Vec<String> {
        let names = self.lock.plugins().map(|plugin| &plugin.name);
        names.filter(|other| is_alike(name, other)).cloned().collect()
    }

    /// The folder of a plugin that is kept in the project.
    pub(super) fn vendored(&self, name: &str) -> PathBuf {
        self.root.join(".harness/plugins").join(name)
    }

    /// The text of the policy; empty where there is none yet.
    pub(super) fn policy(&self) -> Result<PolicyText, Exit> {
        let registry = Registry::load_unlocked(&self.root, self.host());
        let named = registry.policy_file();
        let file = if named.is_empty() { ".harness/harness.md" } else { named }.to_owned();
        match sys::read_text(&self.root.join(&file)) {
            Ok(text) => Ok(PolicyText { file, text }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let text = if file.ends_with(".md") { "---\n---\n" } else { "" }.to_owned();
                Ok(PolicyText { file, text })
            }
            Err(error) => {
                self.printer.error(&format!("`{file}` cannot be read: {error}"), &[], None);
                Err(Exit::Usage)
            }
        }
    }

    /// The name of an entry of the policy about a source, or about something in it; none where there is none.
    pub(super) fn entry_about(&self, source: &str) -> Option<String> {
        let registry = Registry::load_unlocked(&self.root, self.host());
        let is_in = |name: &str| name.strip_prefix(source).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let mut entries = registry.policy()?.sources.iter();
        entries.find(|entry| is_in(&entry.name)).map(|entry| entry.name.clone())
    }

    /// The project as it would be with a plugin, and with another policy where there is one.
    pub(super) fn proposed(&self, plugin: LockedPlugin, policy: Option<&str>) -> Registry {
        let name = plugin.name.clone();
        let lock = self.lock.clone().with_plugin(plugin);
        let proposal = Proposal { lock: Some(&lock), policy, from_cache: Some(&name), ..Proposal::default() };
        Registry::load_proposed(&self.root, self.host(), &proposal)
    }

    /// Whether the policy grants to a plugin what the lock says.
    pub(super) fn is_granted_as_locked(&self, plugin: &LockedPlugin) -> bool {
        let registry = Registry::load_unlocked(&self.root, self.host());
        registry.policy().is_some_and(|policy| digest(&policy.granted(&plugin.source_name())) == plugin.granted)
    }

    /// Writes a plugin into the lock, with the policy that grants to it, and its files where they are to be in the project.
    /// Nothing is written where the project would not load, which was reported.
    pub(super) fn write(
        &self,
        plugin: LockedPlugin,
        content: &Content,
        policy: Option<&PolicyText>,
    ) -> Result<(), Exit> {
        let printer = self.printer;
        let registry = self.proposed(plugin.clone(), policy.map(|policy| policy.text.as_str()));
        let Some(granted) = registry.policy().filter(|_| !registry.diagnostics().has_errors()) else {
            project::report(&registry, printer);
            printer.error("the project would not load with it: nothing is changed", &[], None);
            return Err(Exit::Usage);
        };
        let granted = digest(&granted.granted(&plugin.source_name()));
        let servers = match policy {
            Some(policy) => policy.written(&self.policy()?, content, &plugin, &self.lock),
            None => plugin.servers,
        };
        let plugin = LockedPlugin { granted, servers, ..plugin };
        let vendored = plugin.vendored.then(|| self.vendored(&plugin.name));
        let lock = self.lock.clone().with_plugin(plugin);
        ClosedNames::sweep(&self.root);
        self.written(|| {
            if let Some(folder) = vendored {
                tree::remove(&folder)?;
                folder.parent().map_or(Ok(()), tree::create)?;
                content.write(&folder)?;
            }
            if let Some(policy) = policy {
                let shared: [&Path; 1] = [&self.root];
                output::write(&self.root.join(&policy.file), &policy.text, output::Readers::All, &shared)?;
            }
            self.write_lock(&lock)
        })
    }

    /// Writes the lock alone.
    pub(super) fn write_lock(&self, lock: &Lock) -> std::io::Result<()> {
        let path = self.root.join(lock::FILE);
        if lock.is_empty() {
            return sys::private::remove(&path).map(drop);
        }
        sys::write_whole(&path, &lock.text().map_err(std::io::Error::other)?)
    }

    /// Runs what writes, and reports why it failed.
    pub(super) fn written(&self, write: impl FnOnce() -> std::io::Result<()>) -> Result<(), Exit> {
        write().map_err(|error| {
            self.printer.error(&format!("cannot write the project: {error}"), &[], None);
            Exit::Fault
        })
    }
}

impl PolicyText {
    /// What the entry of a source says.
    pub(super) fn entry(&self, source: &str) -> Option<Json> {
        edit::entry(&self.file, &self.text, &path_of(source)).map(Json::Object)
    }

    /// The same with another entry of a source; none where nothing changes.
    pub(super) fn granting(&self, source: &str, entry: &Json, printer: Printer) -> Result<Option<Self>, Exit> {
        let is_empty = entry.as_object().is_none_or(Map::is_empty);
        if is_empty && self.entry(source).is_none() || self.entry(source).as_ref() == Some(entry) {
            return Ok(None);
        }
        self.changed(edit::set(&self.file, &self.text, &path_of(source), &flow(entry)), printer).map(Some)
    }

    /// The same where a source has these rules beside those that stay, and none of those that are taken from it; none
    /// where nothing changes.
    pub(super) fn regranting(
        &self,
        source: &str,
        (granted, taken): (&[Rule], &[Rule]),
        printer: Printer,
    ) -> Result<Option<Self>, Exit> {
        let left = self.entry(source).map(|entry| without_rules(entry, taken));
        let entry = with_rules(left, granted);
        if entry.as_object().is_some_and(Map::is_empty) {
            return self.without(source, printer);
        }
        self.granting(source, &entry, printer)
    }

    /// The same without the entry of a source; none where it has none.
    pub(super) fn without(&self, source: &str, printer: Printer) -> Result<Option<Self>, Exit> {
        if self.entry(source).is_none() {
            return Ok(None);
        }
        self.changed(edit::remove(&self.file, &self.text, &path_of(source)), printer).map(Some)
    }

    pub(super) fn changed(&self, text: Result<String, String>, printer: Printer) -> Result<Self, Exit> {
        match text {
            Ok(text) => Ok(Self { file: self.file.clone(), text }),
            Err(why) => {
                printer.error(&format!("`{}` stays as it is: {why}", self.file), &[], None);
                Err(Exit::Usage)
            }
        }
    }
}

/// The value of an entry with more rules: what it says already stays.
pub(super) fn with_rules(entry: Option<Json>, rules: &[Rule]) -> Json {
    let mut entry = entry.unwrap_or_else(|| Json::Object(Map::new()));
    for rule in rules {
        let parts: Vec<&str> = rule.key.split('.').collect();
        put(&mut entry, &parts, &rule.item);
    }
    entry
}

/// The value of an entry without rules. A list or a mapping that has nothing left is gone.
pub(super) fn without_rules(mut entry: Json, rules: &[Rule]) -> Json {
    for rule in rules {
        let parts: Vec<&str> = rule.key.split('.').collect();
        take(&mut entry, &parts, &rule.item);
    }
    entry
}

/// Takes a rule out of a mapping of rules. Returns whether nothing is left of that because of it.
fn take(at: &mut Json, parts: &[&str], item: &Json) -> bool {
    if let Some((first, rest)) = parts.split_first() {
        let Some(object) = at.as_object_mut() else { return false };
        if !object.get_mut(*first).is_some_and(|inner| take(inner, rest, item)) {
            return false;
        }
        object.shift_remove(*first);
        return object.is_empty();
    }
    match at {
        Json::Array(items) => {
            let before = items.len();
            items.retain(|one| one != item);
            items.is_empty() && before > 0
        }
        other => other == item,
    }
}

/// Puts a rule into a mapping of rules, unless it is there.
fn put(at: &mut Json, parts: &[&str], item: &Json) {
    if let Some((first, rest)) = parts.split_first() {
        if !at.is_object() {
            *at = Json::Object(Map::new());
        }
        if let Some(object) = at.as_object_mut() {
            put(object.entry(*first).or_insert(Json::Null), rest, item);
        }
        return;
    }
    match (item, &mut *at) {
        (Json::Bool(true), _) => *at = Json::Bool(true),
        (_, Json::Bool(true)) => {}
        (item, Json::Array(items)) => {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
        (item, _) => *at = Json::Array(vec![item.clone()]),
    }
}
