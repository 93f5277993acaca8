//! A folder of a git repository: the machine's own git fetches one commit, and writes the files of the folder as they are
//! in it. There is no checkout: no hook, no submodule, no filter and no setting of the repository has a part in it.

use std::path::Path;

use harness_capability::exec::Output;
use harness_plugin::source::{GitSource, is_abbreviated, is_commit};
use harness_policy::command::{CommandNetwork, FolderRule};
use harness_policy::network::HostRule;
use harness_sys as sys;
use harness_sys::tree;

use crate::walled::{self, Step};
use crate::{Failure, FetchContext, Found, PLUGIN, Packed, STEP, decide, fresh, late, none_of, unpacked};

/// In the new folder: the repository, and what git takes for the user's own folder.
const REPOSITORY: &str = "repository";
const HOME: &str = "home";
/// In the new folder: a repository that commits are looked up in.
const NAMES: &str = "names";
/// In the new folder: the files of the commit, packed.
const FETCHED: &str = "fetched.tar";
/// Where the repository has what was fetched.
const REF: &str = "refs/fetched";

/// An empty repository.
const HEAD: &str = "ref: refs/heads/none\n";
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
/// Files are written as they are, whatever the attributes in the repository say.
const ATTRIBUTES: &str = "* -export-ignore -export-subst -text -eol -crlf -ident -filter -working-tree-encoding\n";

/// The settings that git goes by; none of the machine's and of the user's.
///
/// A pack stays a pack, which one limit bounds, and large files in it are not read into memory. A server that sends less
/// than a kilobyte a second for twenty seconds is given up.
const SETTINGS: &str = "\
[protocol]
\tallow = never
[core]
\thooksPath = /dev/null
\tbigFileThreshold = 1m
[fetch]
\tfsckObjects = true
\tunpackLimit = 1
\trecurseSubmodules = false
[http]
\tlowSpeedLimit = 1000
\tlowSpeedTime = 20
[credential]
\thelper =
[tar]
\tumask = 0022
[gc]
\tauto = 0
[maintenance]
\tauto = false
";

/// Variables that name a file with certificates for https, which replaces that of the system; the first that is set.
const CERTIFICATES: [&str; 2] = ["GIT_SSL_CAINFO", "SSL_CERT_FILE"];
/// Bytes of such a file.
const MAX_CERTIFICATES: u64 = 4 << 20;

/// Fetches the plugin at a source.
pub(crate) async fn fetch(
    source: &GitSource,
    resolved: Option<&str>,
    place: FetchContext<'_>,
) -> Result<Found, Failure> {
    unpacked_from(source, resolved, place, &[]).await.map(|(found, _)| found)
}

/// Fetches the first of these files that the folder of a source has, and nothing else of it. Returns its name too.
pub(crate) async fn first_of(
    source: &GitSource,
    files: &[&str],
    place: FetchContext<'_>,
) -> Result<(Found, String), Failure> {
    let (found, name) = unpacked_from(source, None, place, files).await?;
    Ok((found, name.unwrap_or_default()))
}

/// Fetches the folder of a source; where files are named, the first of them that it has. One time bounds all of it: a server
/// that drips has no new one for each reference that is tried.
async fn unpacked_from(
    source: &GitSource,
    resolved: Option<&str>,
    place: FetchContext<'_>,
    files: &[&str],
) -> Result<(Found, Option<String>), Failure> {
    let unpacked = Box::pin(unpacked_in_steps(source, resolved, place, files));
    tokio::time::timeout(STEP, unpacked).await.map_err(|_| late())?
}

async fn unpacked_in_steps(
    source: &GitSource,
    resolved: Option<&str>,
    place: FetchContext<'_>,
    files: &[&str],
) -> Result<(Found, Option<String>), Failure> {
    let git = Git::new(source, place)?;
    let (fresh, folder) = fresh(place)?;
    let certificates = certificates(place)?;
    prepare(&folder, source, certificates.as_deref())?;
    let git = Git { folder: &folder, has_certificates: certificates.is_some(), ..git };
    let commit = git.commit(source, resolved).await?;
    let tree = source.folder().map_or_else(|| commit.clone(), |folder| format!("{commit}:{folder}"));
    let in_folder = |failure: Failure| {
        let what = source.folder().map_or_else(String::new, |folder| format!("`{folder}`: "));
        Failure { why: format!("{what}{failure}"), ..failure }
    };
    let file = git.first_of(&tree, files).await.map_err(in_folder)?;
    let output = format!("--output={FETCHED}");
    let mut archive = vec!["archive", "--format=tar", &output, &tree];
    archive.extend(file.iter().flat_map(|file| ["--", file.as_str()]));
    git.run(false, &archive).await.map_err(in_folder)?;
    unpacked(&folder, (Packed::ByGit, FETCHED), place).await?;
    Ok((Found { folder: folder.join(PLUGIN), resolved: commit, _fresh: fresh }, file))
}

/// How git is run for one source.
struct Git<'a> {
    place: FetchContext<'a>,
    folder: &'a Path,
    /// The address, as git gets it.
    url: String,
    scheme: &'static str,
    network: CommandNetwork,
    local: Option<FolderRule>,
    has_certificates: bool,
}

impl<'a> Git<'a> {
    fn new(source: &GitSource, place: FetchContext<'a>) -> Result<Self, Failure> {
        let url = source.url();
        let of = |scheme, url: String, network, local| Self {
            place,
            folder: Path::new(""),
            url,
            scheme,
            network,
            local,
            has_certificates: false,
        };
        if let Some(path) = source.local() {
            let path = sys::real_path(&path).map_err(|error| Failure::new(format!("`{}`: {error}", path.display())))?;
            let path = path.to_str().ok_or_else(|| Failure::new("the path of the repository is not text"))?;
            let local = FolderRule::parse(path).map_err(Failure::new)?;
            return Ok(of("file", format!("file://{path}"), CommandNetwork::None, Some(local)));
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(Failure::new("the address has no host"));
        };
        let rule = HostRule::parse(&format!("{host}:{port}")).map_err(Failure::new)?;
        decide(&rule, url, place)?;
        let network = CommandNetwork::hosts(vec![rule.private(place.is_private).map_err(Failure::new)?]);
        Ok(of("https", url.to_string(), network.map_err(Failure::new)?, None))
    }

    /// The commit that the source is at, which is fetched.
    async fn commit(&self, source: &GitSource, resolved: Option<&str>) -> Result<String, Failure> {
        let reference = source.reference().unwrap_or("HEAD");
        let wanted = resolved.or_else(|| Some(reference).filter(|reference| is_commit(reference)));
        if let Some(wanted) = wanted {
            let fetched = self.get(wanted).await;
            // A server need not give a commit that no reference is at.
            if fetched.is_ok() || resolved.is_none() || is_commit(reference) {
                fetched?;
                return self.is(wanted).await;
            }
        }
        if reference == "HEAD" || reference.starts_with("refs/") {
            self.get(reference).await?;
        } else if is_abbreviated(reference) {
            if self.get(&format!("refs/tags/{reference}")).await.is_err() {
                let commit = self.whole_name(reference).await?;
                self.get(&commit).await?;
            }
        } else if let Err(of_tag) = self.get(&format!("refs/tags/{reference}")).await {
            if self.get(&format!("refs/heads/{reference}")).await.is_err() {
                return Err(of_tag);
            }
        }
        match resolved {
            Some(resolved) => self.is(resolved).await,
            None => self.fetched().await,
        }
    }

    async fn get(&self, what: &str) -> Result<(), Failure> {
        let refspec = format!("+{what}:{REF}");
        let options =
            ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"];
        let args: Vec<&str> = options.into_iter().chain(["--end-of-options", &self.url, &refspec]).collect();
        self.run(true, &args).await.map(drop)
    }

    /// The whole name of a commit, by its beginning: of all that branches and tags lead to, in a repository of its own,
    /// because that has commits without their files.
    async fn whole_name(&self, beginning: &str) -> Result<String, Failure> {
        empty(self.folder, NAMES)?;
        let options = ["fetch", "--quiet", "--filter=tree:0", "--no-tags", "--no-recurse-submodules"];
        let refspecs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"];
        let args: Vec<&str> = options
            .into_iter()
            .chain(["--no-write-fetch-head", "--end-of-options", &self.url])
            .chain(refspecs)
            .collect();
        self.run_in(NAMES, true, &args).await?;
        let wanted = format!("{beginning}^{{commit}}");
        let output = self.run_in(NAMES, false, &["rev-parse", "--verify", "--end-of-options", &wanted]).await;
        let commit = output.map_err(|failure| Failure {
            why: format!("no one commit begins with `{beginning}`: {failure}"),
            hint: Some("write the whole name of the commit".to_owned()),
        })?;
        match commit.stdout.trim() {
            commit if is_commit(commit) => Ok(commit.to_owned()),
            _ => Err(Failure::new("git gave no commit")),
        }
    }

    /// The commit that was fetched.
    async fn fetched(&self) -> Result<String, Failure> {
        let output =
            self.run(false, &["rev-parse", "--verify", "--end-of-options", &format!("{REF}^{{commit}}")]).await?;
        let commit = output.stdout.trim();
        match is_commit(commit) {
            true => Ok(commit.to_owned()),
            false => Err(Failure::new("git gave no commit")),
        }
    }

    /// The first of some files that a tree has; none where none are named.
    async fn first_of(&self, tree: &str, files: &[&str]) -> Result<Option<String>, Failure> {
        if files.is_empty() {
            return Ok(None);
        }
        let listing = ["ls-tree", "--name-only", "--full-tree", tree, "--"];
        let output = self.run(false, &listing.into_iter().chain(files.iter().copied()).collect::<Vec<_>>()).await?;
        let is_there = |file: &&&str| output.stdout.lines().any(|line| line == **file);
        match files.iter().find(is_there) {
            Some(file) => Ok(Some((*file).to_owned())),
            None => Err(none_of(files)),
        }
    }

    async fn is(&self, wanted: &str) -> Result<String, Failure> {
        let fetched = self.fetched().await?;
        match fetched == wanted {
            true => Ok(fetched),
            false => Err(Failure::new(format!("it is at the commit {fetched} now, and {wanted} is wanted"))),
        }
    }

    async fn run(&self, has_network: bool, args: &[&str]) -> Result<Output, Failure> {
        self.run_in(REPOSITORY, has_network, args).await
    }

    async fn run_in(&self, repository: &str, has_network: bool, args: &[&str]) -> Result<Output, Failure> {
        let repository = format!("--git-dir={repository}");
        let always = [repository.as_str(), "--no-pager", "--literal-pathspecs"];
        let mut step = Step::new("git", always.iter().chain(args).map(|arg| (*arg).to_owned()).collect());
        let home = self.folder.join(HOME);
        let at = |name: &str| home.join(name).to_string_lossy().into_owned();
        let variables = [
            ("HOME", home.to_string_lossy().into_owned()),
            ("LC_ALL", "C".to_owned()),
            ("GIT_CONFIG_GLOBAL", at("gitconfig")),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
            ("GIT_ATTR_NOSYSTEM", "1".to_owned()),
            ("GIT_ALLOW_PROTOCOL", self.scheme.to_owned()),
            ("GIT_PROTOCOL_FROM_USER", "0".to_owned()),
            ("GIT_TERMINAL_PROMPT", "0".to_owned()),
            ("GIT_NO_LAZY_FETCH", "1".to_owned()),
        ];
        step.env.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        if self.has_certificates {
            step.env.insert("GIT_SSL_CAINFO".to_owned(), at("certificates"));
        }
        if has_network {
            step.network = self.network.clone();
            step.folder = self.local.clone();
        }
        let output = walled::run(self.folder, step, self.place).await?;
        match output.exit_code {
            0 => Ok(output),
            _ => Err(Failure::new(walled::said(&output, "git failed"))),
        }
    }
}

/// Writes the empty repository and what git goes by.
fn prepare(folder: &Path, source: &GitSource, certificates: Option<&[u8]>) -> Result<(), Failure> {
    let mut settings = SETTINGS.to_owned();
    match source.local() {
        // Any owner: git reads the programs to run from protected settings alone.
        Some(_) => settings.push_str("[protocol \"file\"]\n\tallow = always\n[safe]\n\tdirectory = *\n"),
        None => settings.push_str("[protocol \"https\"]\n\tallow = always\n"),
    }
    empty(folder, REPOSITORY)?;
    let home = [("gitconfig", settings.as_bytes())].into_iter().chain(certificates.map(|text| ("certificates", text)));
    Ok(tree::write(&folder.join(HOME), home)?)
}

/// Writes an empty repository.
fn empty(folder: &Path, name: &str) -> Result<(), Failure> {
    let repository = [("HEAD", HEAD), ("config", CONFIG), ("info/attributes", ATTRIBUTES)];
    tree::write(&folder.join(name), repository.into_iter().map(|(path, text)| (path, text.as_bytes())))?;
    for part in ["objects", "refs"] {
        tree::create(&folder.join(name).join(part))?;
    }
    Ok(())
}

/// The certificates that the operator named: git does not see the file itself.
fn certificates(place: FetchContext<'_>) -> Result<Option<Vec<u8>>, Failure> {
    let named = CERTIFICATES.iter().find_map(|name| Some((name, place.variables.value(name)?)));
    let Some((name, file)) = named.filter(|(_, file)| !file.is_empty()) else { return Ok(None) };
    let read = sys::read_bytes(Path::new(&file), MAX_CERTIFICATES);
    read.map(Some).map_err(|error| Failure::new(format!("the variable `{name}`: `{file}`: {error}")))
}

#[cfg(test)]
mod tests;
