//! What the kernel offers for a wall, and which wall stands: the decision is a pure function of the two.

use std::fmt;
use std::sync::OnceLock;

use super::{cgroup, filters, landlock};
use harness_sys as sys;

/// What holds the files of commands, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Files {
    /// A file system of their own, with Landlock's rules in it.
    ViewAndRules,
    /// A file system of their own, in mount and process namespaces.
    View,
    /// Landlock's rules alone.
    Rules,
}

/// What makes a view possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces {
    /// This process may make namespaces as it is: it is root.
    Own,
    /// It may make them within a user namespace.
    User,
}

/// What counts the processes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// A control group of their own.
    Group,
    /// The limit of the user, within a user namespace of their own.
    Namespace,
    /// The limit of the user, above the processes that the user has when a command starts.
    User,
}

/// Whose memory is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// That of all of a command's processes together, by their control group.
    Command,
    /// That of each process.
    Process,
}

/// What was found of a kernel and this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offers {
    /// Whether there are filters for this kind of machine, and the kernel takes them.
    pub filters: Result<(), String>,
    /// Whether a view can be built, or which step failed.
    pub namespaces: Result<Namespaces, String>,
    /// Whether commands without a network get a namespace without one.
    pub network: bool,
    /// The version of Landlock's interface.
    pub landlock: Option<u32>,
    /// Whether this process is root, whose processes the user's limit does not count.
    pub root: bool,
    /// Whether control groups can be made that count processes, and what they hold of memory; or why not.
    pub groups: Result<Memory, String>,
}

/// The wall around commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What holds their files.
    pub files: Files,
    /// How namespaces are made, where they are.
    pub namespaces: Option<Namespaces>,
    /// Whether commands without a network are in a namespace without one.
    pub network: bool,
    /// What counts their processes.
    pub count: Count,
    /// What holds their memory.
    pub memory: Memory,
}

impl Offers {
    /// Of this machine: looked at once, with processes that try it.
    pub fn get() -> &'static Self {
        static OFFERS: OnceLock<Offers> = OnceLock::new();
        OFFERS.get_or_init(|| {
            let probed = super::probe();
            Self {
                filters: filters::offered(),
                network: probed.as_ref().is_ok_and(|(_, network)| *network),
                namespaces: probed.map(|(namespaces, _)| namespaces),
                landlock: sys::landlock_version(),
                root: sys::user() == 0,
                groups: cgroup::Group::new(1, 1 << 30).map(|group| group.memory()),
            }
        })
    }

    /// The wall that stands with this, or all that is missing for one.
    pub fn wall(&self) -> Result<Standing, Vec<String>> {
        let mut missing = Vec::new();
        if let Err(why) = &self.filters {
            missing.push(format!("filters of system calls ({why})"));
        }
        let whole_rules = self.landlock.is_some_and(|version| version >= landlock::WHOLE);
        let files = match (&self.namespaces, self.landlock) {
            (Ok(_), Some(_)) => Some(Files::ViewAndRules),
            (Ok(_), None) => Some(Files::View),
            (Err(_), _) if whole_rules => Some(Files::Rules),
            (Err(why), version) => {
                let has = version.map_or_else(|| "none".to_owned(), |version| format!("version {version}"));
                missing.push(format!(
                    "something to hold files: namespaces ({why}), or Landlock {} (there is {has})",
                    landlock::WHOLE
                ));
                None
            }
        };
        let namespaces = self.namespaces.as_ref().ok().copied();
        let count = match (&self.groups, namespaces) {
            (_, Some(Namespaces::User)) if !self.root => Some(Count::Namespace),
            (Ok(_), _) => Some(Count::Group),
            (Err(_), _) if !self.root => Some(Count::User),
            (Err(why), _) => {
                missing.push(format!("something to count the processes of root: a control group ({why})"));
                None
            }
        };
        let memory = match (count, &self.groups) {
            (Some(Count::Group), Ok(memory)) => *memory,
            _ => Memory::Process,
        };
        match (files, count) {
            (Some(files), Some(count)) if missing.is_empty() => {
                Ok(Standing { files, namespaces, network: self.network && namespaces.is_some(), count, memory })
            }
            _ => Err(missing),
        }
    }
}

/// What stood around a call, the strongest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// WebAssembly: nothing was started.
    #[default]
    Instance,
    /// A command ran behind the kernel's wall.
    Confined(Files),
    /// A command ran without it, as the policy says in so many words.
    Unconfined,
}

impl Tier {
    /// The word for it in JSON and in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Confined(Files::ViewAndRules) => "view+landlock",
            Self::Confined(Files::View) => "view",
            Self::Confined(Files::Rules) => "landlock",
            Self::Unconfined => "unconfined",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(namespaces: Option<Namespaces>, landlock: Option<u32>, root: bool, groups: bool) -> Offers {
        Offers {
            filters: Ok(()),
            network: namespaces.is_some(),
            namespaces: namespaces.ok_or_else(|| "user namespaces: not permitted".to_owned()),
            landlock,
            root,
            groups: if groups { Ok(Memory::Command) } else { Err("read-only".to_owned()) },
        }
    }

    #[test]
    fn each_machine_has_its_wall() {
        use Count::{Group, Namespace, User};
        use Files::{Rules, View, ViewAndRules};
        let (own, user) = (Some(Namespaces::Own), Some(Namespaces::User));
        let (root, nobody) = (true, false);
        for (namespaces, landlock, user, groups, want) in [
            (own, Some(7), root, true, Some((ViewAndRules, Group))),
            (own, Some(1), root, true, Some((ViewAndRules, Group))),
            (own, None, root, true, Some((View, Group))),
            (own, Some(7), root, false, None),
            (user, Some(7), root, true, Some((ViewAndRules, Group))),
            (user, Some(7), root, false, None),
            (user, Some(7), nobody, true, Some((ViewAndRules, Namespace))),
            (user, None, nobody, false, Some((View, Namespace))),
            (None, Some(6), nobody, false, Some((Rules, User))),
            (None, Some(7), nobody, true, Some((Rules, Group))),
            (None, Some(6), root, true, Some((Rules, Group))),
            (None, Some(6), root, false, None),
            (None, Some(5), nobody, true, None),
            (None, None, nobody, true, None),
            (None, None, root, true, None),
        ] {
            let offers = offers(namespaces, landlock, user, groups);
            let stands = offers.wall().ok();
            assert_eq!(stands.map(|wall| (wall.files, wall.count)), want, "{offers:?}");
            assert!(stands.is_none_or(|wall| wall.namespaces == namespaces), "{offers:?}");
            let together = stands.map(|wall| wall.memory == Memory::Command);
            assert_eq!(together, want.map(|(_, count)| count == Group), "{offers:?}");
            assert!(stands.is_none_or(|wall| wall.network == namespaces.is_some()), "{offers:?}");
            let unfiltered = Offers { filters: Err("an odd machine".to_owned()), ..offers };
            assert!(unfiltered.wall().is_err(), "{unfiltered:?}");
        }
    }

    #[test]
    fn all_that_is_missing_is_named() {
        let none =
            Offers { filters: Err("no filters for this machine".to_owned()), ..offers(None, Some(3), true, false) };
        assert_eq!(
            none.wall().unwrap_err(),
            [
                "filters of system calls (no filters for this machine)",
                "something to hold files: namespaces (user namespaces: not permitted), or Landlock 6 (there is version 3)",
                "something to count the processes of root: a control group (read-only)",
            ]
        );
    }

    #[test]
    fn the_weakest_tier_counts() {
        let tiers = [
            Tier::Instance,
            Tier::Confined(Files::ViewAndRules),
            Tier::Confined(Files::View),
            Tier::Confined(Files::Rules),
            Tier::Unconfined,
        ];
        assert!(tiers.is_sorted());
        assert_eq!(tiers.map(Tier::name), ["instance", "view+landlock", "view", "landlock", "unconfined"]);
    }
}
