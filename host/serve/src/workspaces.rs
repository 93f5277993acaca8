//! The workspaces of a tenant: folders with a name, each with files and a quota of its own.
//!
//! Every tenant has `default`. Of the others, the record of the tenant has the names. A request names one by its header, its
//! query or its body, and without a name means `default`. A key may be narrowed to some of them: to it, the others are not
//! there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, HeaderName, StatusCode, Uri};
use harness_capability::fs::{Space, SpaceQuota};
use harness_policy::text::quoted;

use crate::key::KeyRecord;
use crate::problem::Problem;
use crate::record::id_problem;
use crate::runs;
use crate::tenant::{Tenant, Unopened};
use crate::tenants::{Tenants, problem};

/// The one that each tenant has.
pub(crate) const DEFAULT: &str = "default";
/// The header that names one.
const HEADER: HeaderName = HeaderName::from_static("harness-workspace");
/// The parameter of a query that does.
const PARAMETER: &str = "workspace=";

/// A workspace that is in use: each project that is open in it holds this.
#[derive(Debug)]
pub(crate) struct Named {
    /// Its name.
    pub(crate) name: String,
    /// What it holds, and may hold.
    pub(crate) space: Arc<Space>,
}

/// Those of a tenant that were in use since the start.
#[derive(Debug, Default)]
pub(crate) struct Spaces(Mutex<HashMap<String, Arc<Named>>>);

impl Spaces {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Named>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The workspace of this name.
    pub(crate) fn of(&self, name: &str, quota: impl FnOnce() -> SpaceQuota) -> Arc<Named> {
        let mut all = self.all();
        if let Some(named) = all.get(name) {
            return named.clone();
        }
        let named = Arc::new(Named { name: name.to_owned(), space: Arc::new(Space::new(quota())) });
        all.insert(name.to_owned(), named.clone());
        named
    }

    /// Forgets a workspace, unless a project is open in it. Whether it was forgotten.
    pub(crate) fn forget(&self, name: &str) -> bool {
        let mut all = self.all();
        match all.get(name) {
            Some(named) if Arc::strong_count(named) > 1 => false,
            _ => {
                all.remove(name);
                true
            }
        }
    }
}

/// What is wrong with the name of a workspace, if anything is.
pub(crate) fn name_problem(name: &str) -> Option<String> {
    id_problem(name).map(|_| {
        "the name of a workspace is 1 to 40 lower-case letters, digits and `-`, and begins with a letter".to_owned()
    })
}

/// There is none of this name that the key can see.
pub(crate) fn unknown(name: &str) -> Problem {
    Problem::not_found(format!("there is no workspace {}", quoted(name)))
        .hint("`GET /v1/workspaces` lists them")
        .with("workspace", name.chars().take(100).collect::<String>())
}

/// The workspace that a request names by its header or its query.
///
/// # Errors
///
/// It names several, or what is no name.
pub(crate) fn named(headers: &HeaderMap, uri: &Uri) -> Result<Option<String>, Problem> {
    let in_head = headers.get_all(HEADER).iter().map(|value| value.to_str().unwrap_or_default());
    let in_query = uri.query().unwrap_or_default().split('&').filter_map(|part| part.strip_prefix(PARAMETER));
    one_of(in_head.chain(in_query))
}

/// The same address without the workspace in its query.
pub(crate) fn without_name(uri: &Uri) -> Option<Uri> {
    let query = uri.query().filter(|query| query.contains(PARAMETER))?;
    let rest: Vec<&str> = query.split('&').filter(|part| !part.starts_with(PARAMETER)).collect();
    let path = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{}", uri.path(), rest.join("&")) };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// The one name that all of these are.
pub(crate) fn one_of<'n>(names: impl Iterator<Item = &'n str>) -> Result<Option<String>, Problem> {
    let mut found: Option<String> = None;
    for name in names {
        if let Some(wrong) = name_problem(name) {
            return Err(Problem::invalid(wrong));
        }
        match &found {
            Some(other) if other != name => {
                return Err(Problem::invalid("the request names several workspaces"));
            }
            _ => found = Some(name.to_owned()),
        }
    }
    Ok(found)
}

impl KeyRecord {
    /// Whether the key may work in a workspace, and sees what happened there.
    pub(crate) fn has_workspace(&self, name: &str) -> bool {
        self.workspaces.as_ref().is_none_or(|own| own.iter().any(|one| one == name))
    }

    /// The workspace that a request of this key means.
    ///
    /// # Errors
    ///
    /// It may not work there.
    pub(crate) fn workspace(&self, named: Option<&str>) -> Result<String, Problem> {
        match (named, &self.workspaces) {
            (Some(name), _) if self.has_workspace(name) => Ok(name.to_owned()),
            (Some(name), _) => Err(unknown(name)),
            (None, Some(own)) if !self.has_workspace(DEFAULT) => {
                let first = own.first().filter(|_| own.len() == 1);
                first.cloned().ok_or_else(|| {
                    Problem::invalid("the key is narrowed to several workspaces, and the request names none")
                        .hint("name one in the header `Harness-Workspace`")
                })
            }
            (None, _) => Ok(DEFAULT.to_owned()),
        }
    }
}

/// Why a workspace is not removed.
pub(crate) fn in_use(name: &str) -> Problem {
    let why = format!("calls or runs are under way in the workspace {}", quoted(name));
    Problem::new(StatusCode::CONFLICT, "in_use", why).hint("wait for them, or stop the runs, and try again").again(1)
}

impl Tenants {
    /// That a key can be narrowed to these workspaces.
    pub(crate) fn check_workspaces(&self, tenant: Option<&str>, wanted: Option<&[String]>) -> Result<(), Problem> {
        let Some(wanted) = wanted else { return Ok(()) };
        let Some(tenant) = tenant.and_then(|id| self.tenant(id)) else {
            return Err(Problem::invalid("only a key of a tenant is narrowed to workspaces"));
        };
        if wanted.is_empty() {
            return Err(Problem::invalid("`workspaces` is empty: a key is narrowed to one at least"));
        }
        let there = tenant.workspaces();
        wanted.iter().find(|name| !there.contains(name)).map_or(Ok(()), |name| Err(unknown(name)))
    }

    /// Makes a workspace of a tenant.
    ///
    /// # Errors
    ///
    /// There is one of this name, it is no name, or there are as many as the class allows.
    pub(crate) async fn create_workspace(&self, tenant: &Tenant, name: &str) -> Result<(), Problem> {
        if let Some(wrong) = name_problem(name) {
            return Err(Problem::invalid(wrong));
        }
        let there = tenant.workspaces();
        if there.iter().any(|one| one == name) {
            return Err(Problem::new(StatusCode::CONFLICT, "exists", format!("there is a workspace {}", quoted(name))));
        }
        let most = tenant.class.workspaces;
        if there.len() >= most {
            let why = format!("the tenant has {} of {most} workspaces", there.len());
            return Err(Problem::new(StatusCode::CONFLICT, "too_many_workspaces", why)
                .with("limit", "workspaces")
                .with("set_by", tenant.class.set_by())
                .hint("remove one, or ask the operator for a larger `workspaces`"));
        }
        self.change(tenant, |record| record.workspaces.push(name.to_owned())).await
    }

    /// Removes a workspace of a tenant, with its files. Keys that are narrowed to it alone have nothing left to work in.
    ///
    /// # Errors
    ///
    /// There is none of this name, it is `default`, or something is under way in it.
    pub(crate) async fn remove_workspace(&self, tenant: &Tenant, name: &str) -> Result<(), Problem> {
        if name == DEFAULT {
            let why = "the workspace `default` is not removed: every tenant has it";
            return Err(Problem::new(StatusCode::CONFLICT, "conflict", why).hint("remove its files"));
        }
        if !tenant.workspaces().iter().any(|one| one == name) {
            return Err(unknown(name));
        }
        // Also those that wait to be continued after a start.
        if runs::are_open_in(&*self.store, &tenant.id(), name).await? {
            return Err(in_use(name));
        }
        let forgotten = self.change(tenant, |record| record.workspaces.retain(|one| one != name));
        let removed = tenant.remove_workspace(name, async { forgotten.await.map_err(NotRemoved::Problem) }).await;
        match removed {
            Ok(true) => Ok(()),
            Ok(false) => Err(in_use(name)),
            Err(NotRemoved::Problem(why)) => Err(why),
            Err(NotRemoved::Unopened(why)) => Err(problem(&why)),
        }
    }
}

/// Why a workspace was not removed.
enum NotRemoved {
    Problem(Problem),
    Unopened(Unopened),
}

impl From<Unopened> for NotRemoved {
    fn from(why: Unopened) -> Self {
        Self::Unopened(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_workspace_at_most() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let head = |names: &[&str]| {
            let mut headers = HeaderMap::new();
            for name in names {
                headers.append(HEADER, name.parse().unwrap());
            }
            headers
        };
        let named = |names: &[&str], at: &str| named(&head(names), &uri(at)).map_err(|wrong| wrong.detail().to_owned());
        assert_eq!(named(&[], "/v1/files"), Ok(None));
        assert_eq!(named(&["a"], "/v1/files?pattern=x"), Ok(Some("a".to_owned())));
        assert_eq!(named(&["a"], "/v1/files?pattern=x&workspace=a"), Ok(Some("a".to_owned())));
        let several = Err("the request names several workspaces".to_owned());
        assert_eq!(named(&["a", "b"], "/v1/files"), several);
        assert_eq!(named(&["a"], "/v1/files?workspace=b"), several);
        assert_eq!(named(&[], "/v1/files?workspace=a&workspace=b"), several);
        for name in ["", "..", "A", "a/b", "%61", "a%2e", "-a"] {
            assert!(named(&[], &format!("/v1/files?workspace={name}")).is_err(), "{name}");
        }
        let rest = |at: &str| without_name(&uri(at)).map(|uri| uri.to_string());
        assert_eq!(rest("/v1/files/a?workspace=b"), Some("/v1/files/a".to_owned()));
        assert_eq!(rest("/v1/files?pattern=c&workspace=b&x=1"), Some("/v1/files?pattern=c&x=1".to_owned()));
        assert_eq!(rest("/v1/files?pattern=c"), None);
    }
}
